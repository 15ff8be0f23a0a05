"""Groups of consumers as pure machines: the group coordinator without network, disk or clock.

A request is decided from the current state, its records are appended to a partition of `__consumer_offsets`, and only
replaying them changes the state. A log that is loaded may hold any records; after that (`is_loaded`) every record was
decided here, and replay asserts what its decision promised. Driven by `runtime/coordinators/group_host.py`.

shard.py       the groups of one partition; requests and records go on to:
classic_requests.py consumer_requests.py share_requests.py streams_requests.py    groups of a type
offset_requests.py    committed offsets of groups of any type
group.py       the interface of a group to its shard
classic/       JoinGroup and SyncGroup: members agree in generations
consumer/      KIP-848: the coordinator assigns, and reconciles each member by its heartbeats
share/         KIP-932: members share partitions
streams/       KIP-1071: streams groups, whose tasks the coordinator assigns
migration/     a group of one type becomes one of the other
assignors/     from subscriptions to assignments (KIP-848)
offsets.py metadata_hash.py    committed offsets; a hash of subscribed topics
sessions.py    sessions of members of share and streams groups; of others: classic/rebalance.py, consumer/timers.py
hash_order.py timeline_order.py    the order of Java's hash maps, on which the assignors of share and streams groups
    depend; of Kafka's own, in which groups and members are listed
decision.py records.py embedded.py settings.py shared_rules.py    a shard's result; its records; subscriptions as bytes;
    keys; what holds for groups of each type that assigns
long_work.py    long computations that a decision depends on
history.py epoch_history.py explain.py    the last rebalances, for `kafkapy groups explain`
counts.py      what happens to groups, counted for metrics
"""
