"""Shared by the client commands: confluent-kafka if installed, its errors as one line, its futures as values."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from kafkapy.cli import command_config
from kafkapy.cli.deadline import TIMEOUT_S
from kafkapy.cli.defaults import DEFAULT_SERVER as DEFAULT_SERVER
from kafkapy.cli.failure import INTERRUPTED, fail
from kafkapy.errors import KafkapyError, quoted

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

T = TypeVar("T")

JAVA_PARTITIONER: Final = "murmur2_random"
"""librdkafka's name of the partitioner of Java's clients. Its own would put a key that they write into another one."""
AGAINST_IDEMPOTENCE: Final = frozenset(
    ("max.in.flight", "max.in.flight.requests.per.connection", "message.send.max.retries", "queuing.strategy",
     "request.required.acks", "retries")
)  # fmt: skip
"""Properties beside acks with which librdkafka may refuse an idempotent producer."""
NO_PRODUCER_ID: Final = (
    "this user may write to no topic; Kafka before 2.8 also requires the right IDEMPOTENT_WRITE, without which "
    "the property enable.idempotence=false does (CLUSTER_AUTHORIZATION_FAILED)"
)

Server = Annotated[
    str, typer.Option("--bootstrap-server", "-b", metavar="HOST:PORT,...", help="Brokers to connect to; one is enough.")
]
ClientConfig = Annotated[
    list[str] | None,
    typer.Option(
        "--client-config",
        "-X",
        metavar="KEY=VALUE",
        help="A property of the client (librdkafka's names); may be repeated.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


class MissingClientError(Exception):
    """confluent-kafka is not installed."""

    def __init__(self) -> None:
        super().__init__("this command needs confluent-kafka: pip install 'confluent-kafka>=2.10'")


def confluent() -> Any:
    """Return the confluent_kafka package. Raises MissingClientError."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        raise MissingClientError from error
    return confluent_kafka


def client_properties(server: str, settings: list[str] | None, **defaults: object) -> dict[str, Any]:
    """Return librdkafka's properties: our defaults, overridden by those of the command line."""
    properties: dict[str, Any] = {
        "bootstrap.servers": server,
        "log_level": 2,
        "socket.timeout.ms": int(TIMEOUT_S * 1000),
        **{key.replace("_", "."): value for key, value in defaults.items()},
        **command_config.current().librdkafka(),
    }
    return {**properties, **parse_settings(settings)}


def with_java_defaults(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return a producer's properties with what Java's has by default: its partitioner, and idempotence.

    Without it a request whose response was lost is appended twice. As in Java it is off if acks is not all. It costs a
    fixed half second: librdkafka asks for a producer id before it is connected, and then again after that time.
    """
    is_idempotent = str(properties.get("acks", "all")) in ("all", "-1") and properties.keys().isdisjoint(
        AGAINST_IDEMPOTENCE
    )
    return {"partitioner": JAVA_PARTITIONER, "enable.idempotence": is_idempotent, **properties}


def parse_settings(settings: list[str] | None) -> dict[str, str]:
    """Parse options of the form key=value."""
    pairs = [text.partition("=") for text in settings or ()]
    for key, equals, _ in pairs:
        if not equals or not key.strip():
            raise typer.BadParameter(f"{quoted(key)} must read key=value")
    return {key.strip(): value for key, _, value in pairs}


def admin_client(server: str, settings: list[str] | None) -> "AdminClient":
    """Return an admin client, once a broker accepts connections. Raises UnreachableError, KafkaException."""
    from kafkapy.cli.reachable import check_reachable  # not for what asks no broker

    kafka = confluent()
    properties = client_properties(server, settings)
    check_reachable(properties)
    return kafka.admin.AdminClient(properties)  # type: ignore[no-any-return]


def reachable_properties(server: str, settings: list[str] | None) -> dict[str, Any]:
    """Return client_properties(), once a broker accepts connections. Raises UnreachableError, KafkaException.

    For commands with connections of our own, which use only the properties of TLS and logins. A property of -X that
    librdkafka does not know is an error here, too, unless confluent-kafka is not installed.
    """
    from kafkapy.cli.reachable import check_reachable  # not for what asks no broker

    properties = client_properties(server, settings)
    if settings:
        with suppress(MissingClientError):
            confluent().admin.AdminClient(properties)
    check_reachable(properties)
    return properties


@contextmanager
def failures(server: str) -> Iterator[None]:
    """Turn an error of the client or of a broker into one line and exit status 1, Ctrl-C into status 130."""
    try:
        yield
    except KafkapyError as error:
        raise typer.Exit(fail(str(error))) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(INTERRUPTED) from error
    except Exception as error:
        kafka = sys.modules.get("confluent_kafka")  # a command with connections of our own does not import it
        if kafka is None or not isinstance(error, kafka.KafkaException):
            raise
        raise typer.Exit(fail(reason_of_kafka(error.args[0], server))) from error


def outcomes(futures: Mapping[T, Any]) -> Iterator[tuple[T, Any, str | None]]:
    """Yield (subject, result, error as one line) for each future of an admin request, also after an error."""
    kafka = confluent()
    for subject, future in futures.items():
        try:
            yield subject, future.result(timeout=TIMEOUT_S + 5), None
        except kafka.KafkaException as error:
            yield subject, None, reason_of_kafka(error.args[0], None)


def reason_of_kafka(error: Any, server: str | None) -> str:
    """Return a KafkaError's text. `server`: named if no broker answered; None: the error's own text is used."""
    code = getattr(error, "code", lambda: None)()
    kafka_error = confluent().KafkaError
    is_unreachable = code in (kafka_error._TRANSPORT, kafka_error._ALL_BROKERS_DOWN, kafka_error._TIMED_OUT)
    if is_unreachable and server is not None:
        return f"no broker answers at {server}"
    if code == kafka_error.CLUSTER_AUTHORIZATION_FAILED and error.fatal():  # of the idempotent producer's id
        return NO_PRODUCER_ID
    text = error.str() if hasattr(error, "str") else str(error)
    return f"{text}" if code is None else f"{text} ({error.name()})"
