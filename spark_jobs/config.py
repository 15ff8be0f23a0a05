"""The configuration of jobs: a pydantic model for each kind, read from a YAML file, the environment and `--set`.

Every key has a description; `python -m spark_jobs JOB --help` lists them all. Unknown keys are refused. A job's own
model lives in the job's module and derives from one of these:

    JobConfig      what a client of Kafka needs (feed)
    SparkConfig    and what a Spark session needs (batch jobs: audit, replay, chart)
    StreamConfig   and what a streaming query needs (bronze, quotes)
    TopicConfig    and how its batches go to topics (live, book, fills)
    TableConfig    and how they go to tables (silver, gold)
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self, TypeVar

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from spark_jobs.errors import JobError

UNITS_MS = {"millisecond": 1, "second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
DURATION = re.compile(r"(\d+) (millisecond|second|minute|hour|day)s?")
MASTER = re.compile(r"local(\[.+\])?|local-cluster\[.+\]|yarn|(spark|k8s|mesos)://.+")
OPTIONS = ("kafka", "producer", "spark", "iceberg_catalog", "delta_options", "topic_config")
AVAILABLE_NOW = "available_now"
ENVIRONMENT = "SPARK_JOBS_"
OWN_VARIABLES = ("TRACE", "FAILPOINTS")
"""Variables of __main__.py and failpoints.py, which are no key of a job."""
OF_KUBERNETES = re.compile(r"(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_\w+)?)")
"""Variables that each pod gets for a service, which may be called spark-jobs, or spark-jobs-page."""
SERVICE_URL = re.compile(r"(tcp|udp|sctp)://.+")
"""The value of such a variable if its name is that of a key, too: port, or metrics_port."""
NOT_YAML = (yaml.YAMLError, ValueError)
"""A ValueError is one of Unicode, or of a day that no month has."""


def duration_ms(text: str) -> int:
    """Return the milliseconds of "10 seconds" and the like. Raises ValueError."""
    match = DURATION.fullmatch(text)
    if match is None:
        raise ValueError("a duration reads as '10 seconds': a number and milliseconds, seconds, minutes, hours or days")
    return int(match[1]) * UNITS_MS[match[2]]


def _duration(text: str) -> str:
    duration_ms(text)
    return text


def _trigger(text: str) -> str:
    return text if text == AVAILABLE_NOW else _duration(text)


def _as_json(given: object) -> object:
    """Return a mapping of the YAML file as the JSON text that Spark expects."""
    return json.dumps(given) if isinstance(given, dict) else given


def _starting_offsets(text: str) -> str:
    if text in ("earliest", "latest"):
        return text
    try:
        TypeAdapter(dict[str, dict[int, int]]).validate_json(text)
    except ValidationError:
        raise ValueError('earliest, latest or offsets as {"topic": {"0": 23, "1": -2}} are expected') from None
    return text


def _as_texts(given: object) -> object:
    """Return options with true and false as clients write them; YAML reads both as a bool."""
    if not isinstance(given, dict):
        return given
    return {key: str(value).lower() if isinstance(value, bool) else value for key, value in given.items()}


def _master(text: str) -> str:
    if not MASTER.fullmatch(text):
        raise ValueError("a master reads as local[*], local[2], spark://host:port, yarn or k8s://url")
    return text


Duration = Annotated[str, AfterValidator(_duration)]
Trigger = Annotated[str, AfterValidator(_trigger)]
StartingOffsets = Annotated[str, BeforeValidator(_as_json), AfterValidator(_starting_offsets)]
Master = Annotated[str, AfterValidator(_master)]
Options = Annotated[dict[str, str], BeforeValidator(_as_texts)]


class JobConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True, allow_inf_nan=False)

    bootstrap_servers: str = Field(description="host:port of the brokers, comma-separated")
    kafka: Options = Field(
        default={},
        description="options of the Kafka client (security.protocol, sasl.*, ssl.*, ...), passed on as they are: "
        "Java client's names in Spark jobs (reader and writer alike), librdkafka's in feed and page",
    )
    metrics_port: int | None = Field(default=None, ge=0, le=65535, description="serve Prometheus metrics on this port")
    metrics_host: str = Field(default="127.0.0.1", description="address that the metrics listen on")

    @model_validator(mode="after")
    def _one_cluster(self) -> Self:
        """Checks would ask one cluster, and readers another."""
        for name in ("kafka", "producer"):
            if "bootstrap.servers" in getattr(self, name, {}):
                raise ValueError(f"{name}: bootstrap.servers is said by the key bootstrap_servers alone")
        return self


class SparkConfig(JobConfig):
    master: Master | None = Field(default=None, description="Spark's master; default spark-submit's, else local[*]")
    spark: Options = Field(default={}, description="options of the Spark session")
    shuffle_partitions: int = Field(default=4, ge=1, description="tasks of a shuffle; fixed by the first checkpoint")


class StreamConfig(SparkConfig):
    """A query from topics to an output. Exactly one of topics and topic_pattern is given."""

    topics: list[str] = Field(default=[], description="topics to read")
    topic_pattern: str | None = Field(default=None, description="or: a Java regular expression of topics to read")
    checkpoint: str = Field(description="directory (any Hadoop URL) that holds how far the job has come")
    output: str | None = Field(default=None, description="directory (any Hadoop URL) of the Parquet files written")
    trigger: Trigger = Field(
        default="5 seconds",
        description="a batch per duration ('0 seconds': back to back), or available_now: what is there, then end",
    )
    starting_offsets: StartingOffsets = Field(
        default="earliest",
        description='where a new checkpoint begins: earliest, latest or {"topic": {"0": 23, "1": -2}}, where -2 is '
        "earliest and -1 latest",
    )
    max_offsets_per_trigger: int | None = Field(default=None, ge=1, description="most records in a batch")
    min_partitions: int | None = Field(default=None, ge=1, description="least Spark tasks of a read")
    fail_on_data_loss: bool = Field(default=True, description="end when records were deleted before they were read")
    isolation_level: Literal["read_committed", "read_uncommitted"] = Field(
        default="read_committed", description="whether records of aborted and open transactions are left out"
    )
    stop_timeout_s: float = Field(default=60, ge=0, description="how long a stop waits for the running batch")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if bool(self.topics) == bool(self.topic_pattern):
            raise ValueError("exactly one of topics and topic_pattern is needed")
        return self

    @model_validator(mode="after")
    def _reads_no_output(self) -> Self:
        """A job that reads what it writes has no end, and a reset would empty its input."""
        for topic in self.input_topics():
            if topic in self.topics_of_batches():
                raise ValueError(f"topic {topic} is read and written by this job: name another one for what it writes")
        return self

    @model_validator(mode="after")
    def _directories_differ(self) -> Self:
        """Of two parts of a batch in one directory the second would count as written; a reset removes all in it."""
        own, others = ([*map(_place, paths)] for paths in (self.own_directories(), self.other_directories()))
        for path in own:
            if own.count(path) > 1:
                raise ValueError(f"{path} is named for two outputs: give each a directory of its own")
            for other in others:
                if f"{other}/".startswith(f"{path}/"):
                    raise ValueError(f"--reset-output would remove {other} with {path}: give that one another name")
        return self

    def input_topics(self) -> list[str]:
        """Return the input topics that are named; none for a topic_pattern."""
        return self.topics

    def outputs(self) -> list[str]:
        """Return the output directories, which belong to the checkpoint."""
        return [self.output] if self.output else []

    def own_directories(self) -> list[str]:
        """Return the directories that a reset removes."""
        return [self.checkpoint, *self.outputs()]

    def other_directories(self) -> list[str]:
        """Return the directories that stay: the job reads them, or shares them with other jobs."""
        return []

    def output_topics(self) -> list[str]:
        """Return the output topics, which belong to the checkpoint."""
        return []

    def topics_of_batches(self) -> list[str]:
        """Return all topics that batches go to: output topics, and those that several jobs may share."""
        return self.output_topics()

    @property
    def available_now(self) -> bool:
        return self.trigger == AVAILABLE_NOW


class TopicConfig(StreamConfig):
    """A query whose batches go to topics."""

    delivery: Literal["at_least_once", "exactly_once"] = Field(
        default="at_least_once",
        description="to topics: by Spark's sink, which repeats a batch's rows after a crash, or in transactions "
        "(transactional_sink.py), which readers with read_committed see once",
    )
    producer: Options = Field(
        default={}, description="options of exactly_once's producer by librdkafka's names (security.protocol, ...)"
    )
    transactional_id: str | None = Field(
        default=None, description="its transactional ids and groups begin so; default spark-jobs-JOB"
    )
    transactions: int = Field(default=4, ge=1, description="transactions of a batch, and tasks that send it")
    first_transactional_batch: int = Field(
        default=0, ge=0, description="first batch of a query that is sent so: above 0 where it was at_least_once before"
    )

    @model_validator(mode="after")
    def _producer_is_secure(self) -> Self:
        is_secure = "security.protocol" in self.kafka
        if self.delivery == "exactly_once" and is_secure and "security.protocol" not in self.producer:
            raise ValueError("exactly_once sends by librdkafka: give its security options under producer, too")
        return self

    @model_validator(mode="after")
    def _transactional_ids_differ(self) -> Self:
        """Ids are PREFIX-TOPIC of a topic's driver, PREFIX-TOPIC-0, -1, ... of its sink partitions."""
        if self.delivery == "at_least_once":
            return self
        topics = self.topics_of_batches()
        for topic in topics:
            if topics.count(topic) > 1:
                raise ValueError(f"{topic} is named for two outputs: with exactly_once each needs a topic of its own")
            for other in topics:
                if is_sink_partition(other, topic, self.transactions):
                    raise ValueError(
                        f"topics {topic} and {other} would share the transactional id of {other}: rename one of them, "
                        f"so that not both have the same name but for a number"
                    )
        return self


def is_sink_partition(name: str, topic: str, transactions: int) -> bool:
    """Return whether the name is that of the topic with the number of a sink partition, as in its transactional id."""
    number = name.removeprefix(f"{topic}-")
    return number in map(str, range(transactions)) and name != number


class TableConfig(TopicConfig):
    """A query whose batches go to tables, too."""

    iceberg: str | None = Field(
        default=None,
        description="directory of Iceberg tables (gold: market.bars, silver: market.trades), with an SQLite catalogue",
    )
    iceberg_catalog: Options = Field(
        default={}, description="or: another catalogue, by pyiceberg's names (type: rest, uri: http://...)"
    )
    delta: str | None = Field(default=None, description="directory or URL of a Delta table")
    delta_options: Options = Field(default={}, description="of its storage, by deltalake's names")
    maintain_every: int = Field(
        default=100, ge=1, description="batches after which a table's small files are made one, old versions deleted"
    )
    keep_versions: Duration = Field(
        default="1 day", description="how long a table can be read as it was (Iceberg: its last 1,000 versions at most)"
    )

    def own_directories(self) -> list[str]:
        return [*super().own_directories(), *([self.delta] if self.delta else [])]

    def other_directories(self) -> list[str]:
        return [*super().other_directories(), *([self.iceberg] if self.iceberg else [])]


def _place(path: str) -> str:
    """Return a directory's path in one form, of this machine or of another file system."""
    plain = path.removeprefix("file://").removeprefix("file:")
    return plain.rstrip("/") if "://" in plain else os.path.abspath(plain)


AnyConfig = TypeVar("AnyConfig", bound=JobConfig)


def load_config(
    model: type[AnyConfig],
    path: Path | None,
    overrides: Iterable[str] = (),
    environment: Mapping[str, str] = MappingProxyType({}),
) -> AnyConfig:
    """Read a job's YAML file, apply SPARK_JOBS_KEY of the environment, then KEY=VALUE overrides, and check it all.

    Dots in a KEY go into nested keys. Raises JobError naming the file and the key, and what has set it over the file.
    """
    values = _read(path) if path is not None else {}
    origins: dict[str, str] = {}
    for key in model.model_fields:
        name = key.upper()
        text = environment.get(f"{ENVIRONMENT}{name}")
        if text is not None and not (OF_KUBERNETES.fullmatch(name) and SERVICE_URL.fullmatch(text)):
            origins[key] = f"{ENVIRONMENT}{name}"
            values[key] = _yaml(text, origins[key])
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals:
            raise JobError(f"--set {override}: KEY=VALUE is expected")
        first, _, rest = key.partition(".")
        origins[key] = f"--set {key}"
        is_option = first in OPTIONS and rest != ""
        _put(values, key, _literal(text) if is_option else _yaml(text, f"--set {override}"))
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problems = "; ".join(_problem_text(problem, origins) for problem in error.errors())
        raise JobError(f"{path or 'configuration'}: {problems}") from None


def refuse_unknown(environment: Iterable[str], keys: Iterable[str]) -> None:
    """Raise JobError if a variable of the environment is named as if it were a key, and no job has that key."""
    known = [*OWN_VARIABLES, *map(str.upper, keys)]
    for name in sorted(name for name in environment if name.startswith(ENVIRONMENT)):
        key = name.removeprefix(ENVIRONMENT)
        if key not in known and not OF_KUBERNETES.fullmatch(key):
            close = get_close_matches(key, known, 1)
            raise JobError(f"{name}: no job has such a key" + (f", is {ENVIRONMENT}{close[0]} meant?" if close else ""))


def _yaml(text: str, where: str) -> Any:
    try:
        return yaml.safe_load(text)
    except NOT_YAML:
        raise JobError(f"{where}: the value is not YAML") from None


def _literal(text: str) -> str:
    """Return an option's value as it is written, without quotes around it: YAML would make 83 of a password 0123."""
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if is_quoted else text


def describe(model: type[BaseModel], prefix: str = "") -> Iterable[tuple[str, str, str, str]]:
    """Yield (key, type, default, description) of every key, nested models flattened with dots."""
    for name, field in model.model_fields.items():
        nested = [kind for kind in _kinds(field.annotation) if isinstance(kind, type) and issubclass(kind, BaseModel)]
        if nested:
            yield from describe(nested[0], f"{prefix}{name}.")
            continue
        default = "required" if field.is_required() else str(field.get_default(call_default_factory=True))
        yield prefix + name, _type_name(field.annotation), default, field.description or ""


def _read(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text()) or {}
    except OSError as error:
        raise JobError(f"{path} cannot be read: {error.strerror}") from None
    except NOT_YAML as error:
        raise JobError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise JobError(f"{path}: a mapping of keys to values is expected")
    return values


def _put(values: dict[str, Any], key: str, value: object) -> None:
    """Set a nested key; names of options that are passed on (Spark, Kafka) have dots themselves."""
    first, _, rest = key.partition(".")
    if not rest:
        values[first] = value
        return
    inner = values.setdefault(first, {})
    if not isinstance(inner, dict):
        raise JobError(f"--set {key}: {first} has no keys")
    if first in OPTIONS:
        inner[rest] = value
    else:
        _put(inner, rest, value)


def _problem_text(problem: Any, origins: Mapping[str, str]) -> str:
    key = ".".join(str(part) for part in problem["loc"])
    found = [origin for place, origin in origins.items() if f"{key}.".startswith(f"{place}.")]
    reason = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        reason = "no such key (see --help)"
    return (f"{key}: {reason}" if key else reason) + (f" (from {found[-1]})" if found else "")


def _kinds(annotation: Any) -> list[Any]:
    return [annotation, *(kind for argument in getattr(annotation, "__args__", ()) for kind in _kinds(argument))]


def _type_name(annotation: Any) -> str:
    if getattr(annotation, "__origin__", None) is Literal:
        return "|".join(str(value) for value in annotation.__args__)
    if getattr(annotation, "__args__", None):
        return str(annotation).replace("typing.", "").replace(" | None", "").replace("pathlib.", "")
    return getattr(annotation, "__name__", str(annotation))
