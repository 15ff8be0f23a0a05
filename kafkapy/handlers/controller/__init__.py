"""The requests of nodes to the active controller, on the controllers' listener; clients are refused here.

broker_registration.py broker_heartbeat.py    a broker registers, renews its session, is unfenced, shuts down
controller_registration.py    a controller's endpoints and features
alter_partition.py            a leader changes ISRs
assign_replicas_to_dirs.py    the directories of a broker's replicas
allocate_producer_ids.py      a block of producer ids

Called by `serving/router.py`; decided by `metadata/controller.py`, driven by `runtime/controller/controller.py`.
"""
