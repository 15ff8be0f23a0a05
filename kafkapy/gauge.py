"""One measured value, under the name that it has in Apache Kafka's JMX."""

from typing import NamedTuple


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
