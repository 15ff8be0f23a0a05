"""Streams groups (KIP-1071) as Apache Kafka has written them: kept, but not served yet. Pure.

group.py    a group, of which the members and the epoch are known
topology.py              subtopologies as members send them, and what is refused
configured_topology.py topic_configuration.py    with tasks and internal topics, in this cluster; how they are found
tasks.py assignor_spec.py    the tasks of a member; what an assignor is given
sticky_assignor.py process_state.py java_queue.py    who runs which tasks, as Apache Kafka's assignor `sticky` decides
"""
