"""kafkapy: a Kafka-compatible broker in pure Python.

`Broker` embeds a single node in a test or a program, `Cluster` runs several as processes; `python -m kafkapy` (or the
`kafkapy` command) runs one. In a checkout, docs/questions.md leads from a question (who deletes a segment's files?) to
the function that decides it; docs/glossary.md has the terms, each package's docstring its files.

Machines decide and know no socket, drivers feed them; from bottom to top:

types.py errors.py machine.py seams.py    ids; error families; the contract of machines; what a simulator replaces
dataclass.py named_tuple.py native.py gauge.py recent.py    cheaper dataclasses; compiled code; measured values
config/ protocol/ metrics/     keys of configuration; messages as bytes; counters
record/ metadata/ timer/       record batches; the cluster's metadata and its controller's tables; time-outs
raft/ group/ share/ transaction/ security/ telemetry/    pure machines: a quorum, groups, queues, logins, metrics
storage/ replication/          logs on disk; partitions with their leaders and followers
runtime/                       the drivers: loops that feed the machines and carry out their effects
handlers/ serving/ reactor/    a file for each API; what every request passes; sockets
server/ embedded/ testing/     a node as a process; a node in a test, and its public names
cli/ console/ decoders/        commands; pages for a browser; keys and values as text
registry/ recording/           a schema registry, for any Kafka; frames of a client, recorded and played again
__main__.py child_command.py   the command; how a process starts another one
private_file.py                files for their owner alone, written whole
compiled.py version.py         is this installation compiled by mypyc; the version
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
