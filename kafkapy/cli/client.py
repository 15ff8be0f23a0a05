"""What the client commands share: confluent-kafka when it is there, its errors as one line, its futures as values."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from kafkapy.cli.failure import fail

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

T = TypeVar("T")
TIMEOUT_S = 10.0

Server = Annotated[
    str, typer.Option("--bootstrap-server", "-b", metavar="HOST:PORT,...", help="Brokers to connect to first.")
]
ClientConfig = Annotated[
    list[str] | None,
    typer.Option("--client-config", "-X", metavar="KEY=VALUE", help="A property of the client (librdkafka)."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DEFAULT_SERVER = "127.0.0.1:9092"


class MissingClientError(Exception):
    """confluent-kafka is not installed."""

    def __init__(self) -> None:
        super().__init__("this command needs confluent-kafka: pip install kafkapy[cli]")


def confluent() -> Any:
    """Return the confluent_kafka package. Raises MissingClientError."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        raise MissingClientError from error
    return confluent_kafka


def client_properties(server: str, settings: list[str] | None, **defaults: object) -> dict[str, Any]:
    """Return librdkafka's properties: our defaults, then what the command line sets."""
    properties: dict[str, Any] = {
        "bootstrap.servers": server,
        "log_level": 2,
        "socket.timeout.ms": int(TIMEOUT_S * 1000),
        **{key.replace("_", "."): value for key, value in defaults.items()},
    }
    return {**properties, **parse_settings(settings)}


def parse_settings(settings: list[str] | None) -> dict[str, str]:
    """Return key -> value of options that read key=value."""
    pairs = [text.partition("=") for text in settings or ()]
    for key, equals, _ in pairs:
        if not equals or not key.strip():
            raise typer.BadParameter(f"{key!r} must read key=value")
    return {key.strip(): value for key, _, value in pairs}


def admin_client(server: str, settings: list[str] | None) -> "AdminClient":
    return confluent().admin.AdminClient(client_properties(server, settings))  # type: ignore[no-any-return]


@contextmanager
def failures(server: str) -> Iterator[None]:
    """Turn an error of the client or of a broker into one line and exit status 1."""
    kafka = confluent()
    try:
        yield
    except kafka.KafkaException as error:
        raise typer.Exit(fail(_reason(error.args[0], server))) from error
    except BrokenPipeError as error:
        raise typer.Exit(1) from error


def outcomes(futures: Mapping[T, Any]) -> Iterator[tuple[T, Any, str | None]]:
    """Yield (what was asked for, result, error as one line) of an admin request, one failing does not hide others."""
    kafka = confluent()
    for subject, future in futures.items():
        try:
            yield subject, future.result(timeout=TIMEOUT_S + 5), None
        except kafka.KafkaException as error:
            yield subject, None, _reason(error.args[0], None)


def _reason(error: Any, server: str | None) -> str:
    code = getattr(error, "code", lambda: None)()
    kafka_error = confluent().KafkaError
    is_unreachable = code in (kafka_error._TRANSPORT, kafka_error._ALL_BROKERS_DOWN, kafka_error._TIMED_OUT)
    if is_unreachable and server is not None:
        return f"no broker answers at {server}"
    text = error.str() if hasattr(error, "str") else str(error)
    return f"{text}" if code is None else f"{text} ({error.name()})"
