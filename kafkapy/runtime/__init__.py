"""The drivers: asynchronous loops that feed the pure machines with events and time, and carry out what they return.

quorum/         Raft: `raft/core.py`
controller/     the active controller: `metadata/controller.py`
broker/         a broker at its controller: registration, metadata applied, ISR changes
coordinators/   groups and transactions: `group/shard.py`, `transaction/shard.py`
share/          share partitions that are in use: `share/partition.py`
followers/      fetching from leaders
logs/           recovery, flushes, retention, compaction, moves

Shared by them:
peer.py broker_channels.py    the connection to another node; connections to brokers by id
turns.py pool.py after_reads.py    long work in turns of the loop; calls on workers; timers that read sockets first
begun.py        work that begins at once, and becomes a task only if it has to wait
expirer.py      drives `timer/wheel.py`
decoded_requests.py client_telemetry.py    the memory of decoded requests; metrics pushed by clients

Built, started and stopped by `server/`; every task has an owner that awaits its end.
"""
