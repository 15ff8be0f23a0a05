"""Streams groups (KIP-1071): the coordinator keeps the topology and assigns its tasks; members only run them. Pure.

group.py state.py member.py    StreamsGroup: the state in the log, as replayed, and soft state; a member with its tasks
heartbeat.py checks.py decision.py    a heartbeat's decision: begin here; refusals; results beside records
idle.py    heartbeats that need no decision, as nearly all
topology.py configured_topology.py topic_configuration.py    subtopologies as members send them; with the counts of
    tasks and the internal topics that they have in this cluster; how they are found
target.py assignors.py assignor_spec.py    the target assignment; the assignors by name; what an assignor is given
sticky_assignor.py process_state.py java_queue.py    Apache Kafka's assignor `sticky`
reconcile.py task_owners.py    a member's next step towards its target; the processes that have it, also as warm-up
tasks.py task_offsets.py endpoints.py    tasks; offsets of their state; endpoints of interactive queries
records.py removal.py describe.py history.py    records; members that leave; descriptions; the rebalances
settings.py timers.py    configuration; deadlines of members, and of the first assignment

Called by `group/streams_requests.py`; driven by `runtime/coordinators/group_host.py`.
"""
