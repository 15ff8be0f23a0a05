"""kafkapy: a Kafka-compatible broker in pure Python.

`Broker` embeds a single node in a test or a program, `Cluster` runs several as processes; `python -m kafkapy` (or the
`kafkapy` command) runs one.
"""

from typing import TYPE_CHECKING, Any

from kafkapy.compiled import check_sources

check_sources()

__version__ = "0.1.0"
__all__ = ["Broker", "Cluster", "__version__"]

if TYPE_CHECKING:
    from kafkapy.server.cluster.cluster import Cluster
    from kafkapy.server.embedded import Broker


def __getattr__(name: str) -> Any:
    """Import what is exported when it is first asked for: `import kafkapy` stays cheap."""
    if name == "Broker":
        from kafkapy.server.embedded import Broker

        return Broker
    if name == "Cluster":
        from kafkapy.server.cluster.cluster import Cluster

        return Cluster
    raise AttributeError(f"module {__name__} has no attribute {name}")
