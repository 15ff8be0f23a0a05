"""A file for each API: request and context in, response out. `serving/router.py` calls it.

table.py        the APIs and versions that are served, by listener: begin here
context.py      the arguments of every handler: the node's services, and the request's context
data/           produce, fetch, offsets by time
groups/ share/ streams/ transactions/    requests to the coordinators
topics/ configs/ cluster/ security/    administration
controller/     requests of nodes to the active controller
legacy/         versions that Apache Kafka 4 removed
imitated.py     the API versions of older releases, which a broker can imitate

Shared by several of them:
forwarding.py cluster_access.py cluster_view.py    requests forwarded to the controller; rights; addresses of brokers
data_plane.py parts.py encoded_responses.py    partitions and their leaders; large requests in parts; cached responses
topics_in_creation.py node_refusals.py    topics being auto-created; refused requests of other nodes, logged
stale_metadata.py    closes connections that request addresses from a node whose metadata is stale
described_groups.py    descriptions of groups that have a group epoch
"""
