"""Measured values, under the names that they have in Apache Kafka's JMX."""

from collections.abc import Sequence
from typing import Protocol

from kafkapy.named_tuple import NamedTuple


class Gauge(NamedTuple):
    """`group`: the domain and the type of the MBean ("kafka.server:type=ReplicaManager"), `name` its name or attribute.

    An empty group stands for names that are not Kafka's but kafka_exporter's, which are taken as they are.
    """

    group: str
    name: str
    value: float
    tags: tuple[tuple[str, str], ...] = ()
    is_counter: bool = False
    """Whether it only ever rises while the process lives."""

    def __str__(self) -> str:
        tags = "".join(f",{key}={value}" for key, value in self.tags)
        return f"{self.group},name={self.name}{tags}"


class Recent(Protocol):
    """A histogram that knows its recent values (kafkapy.metrics.recent_histogram). `count`: of all values ever."""

    count: int

    def quantiles(self, wanted: Sequence[float]) -> list[float]:
        """Return the recent values at ascending quantiles."""


class Distribution(NamedTuple):
    """Values counted in histograms (kafkapy.metrics.histogram): shown as quantiles of the last minutes, and a count.

    The values are those of all `histograms` together and as many zeros as `zeros` says, each times `unit`.
    """

    group: str
    name: str
    tags: tuple[tuple[str, str], ...]
    histograms: Sequence[Sequence[int]]
    zeros: int = 0
    unit: float = 1.0
    recent: Recent | None = None
    """If given, the values are counted in it alone."""


class Row(NamedTuple):
    """Several gauges with the same tags, at a fifth of their cost; `columns`: group and name of each."""

    columns: tuple[tuple[str, str], ...]
    values: tuple[float, ...]
    tags: tuple[tuple[str, str], ...]


class BucketCounts(NamedTuple):
    """A histogram of Prometheus. counts[i]: the values above bounds[i - 1] and up to bounds[i]; the last: all above."""

    group: str
    name: str
    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float | None
    """The sum of the values, if it is known."""
    tags: tuple[tuple[str, str], ...]


Measured = Gauge | Distribution | Row | BucketCounts
