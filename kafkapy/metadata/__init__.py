"""The cluster's metadata: immutable images of it, and the tables in which the active controller decides changes. Pure.

image.py registrations.py persistent.py    the image; its entries; the map that shares structure between images
record_serde.py delta.py topics_delta.py loader.py snapshot.py    records to changes to the next image, and back
controller.py       the controller's tables joined: request -> Decision(records, response); replay changes them
brokers.py          registration, heartbeats, fencing
topics.py topic_names.py new_partitions.py placement.py    topics, their partitions, and where replicas go
partitions.py elections.py    changes of ISRs; who leads after one: the only rules of elections
requested_elections.py partition_indexes.py    elections that somebody asks for; which partitions a broker leads
reassignments.py    moving partitions
configs.py client_quotas.py features.py feature_updates.py producer_ids.py    other tables
acls.py acl_types.py cidr.py scram.py scram_types.py delegation_tokens.py    tables of rights and logins
limits.py bootstrap.py    bounds of one operation; the first records

Driven by `runtime/controller/controller.py`, which makes images of committed records, and `runtime/controller/term.py`,
which has the tables. `runtime/broker/metadata_publisher.py` applies images.
"""
