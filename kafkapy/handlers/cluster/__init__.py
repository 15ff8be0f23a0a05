"""APIs about the cluster: its nodes, features, quorum, log directories and reassignments.

api_versions.py                  the APIs and features of a node: every client's first request
describe_cluster.py describe_controllers.py    nodes, on a broker's and on the controllers' listener
raft_requests.py describe_quorum.py    the metadata quorum: its own requests, and its progress
update_features.py    feature levels
unregister_broker.py unregister_controller.py    removes nodes that have left
alter_partition_reassignments.py list_partition_reassignments.py elect_leaders.py    replicas and leaders
describe_log_dirs.py alter_replica_log_dirs.py    this broker's directories

Called by `serving/router.py`. The active controller decides changes of metadata (`runtime/controller/controller.py`).
"""
