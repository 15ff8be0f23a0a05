"""kafkapy: a Kafka-compatible broker in pure Python.

`Broker` embeds a single node in a test or a program, `Cluster` runs several as processes; `python -m kafkapy` (or the
`kafkapy` command) runs one.
"""

from typing import TYPE_CHECKING, Any

from kafkapy.compiled import check_sources
from kafkapy.version import __version__

check_sources()

__all__ = ["Broker", "Cluster", "__version__"]

if TYPE_CHECKING:
    from kafkapy.embedded.broker import Broker
    from kafkapy.embedded.cluster import Cluster


def __getattr__(name: str) -> Any:
    """Import what is exported when it is first asked for: `import kafkapy` stays cheap."""
    if name == "Broker":
        from kafkapy.embedded.broker import Broker

        return Broker
    if name == "Cluster":
        from kafkapy.embedded.cluster import Cluster

        return Cluster
    raise AttributeError(f"module {__name__} has no attribute {name}")
