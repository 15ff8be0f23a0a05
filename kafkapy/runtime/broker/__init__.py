"""A broker's part in the cluster: it registers, applies metadata, and requests changes. Each module has its own task.

lifecycle.py             registration, heartbeats, controlled shutdown
metadata_publisher.py    applies each committed image to the broker, in turns of the loop
active_controller.py controller_channel.py    requests to the active controller, in this process or over the network
isr_updates.py           requests changes of ISRs (AlterPartition), of many partitions at once
directory_assignments.py    reports which log directory holds each replica
producer_ids.py          blocks of producer ids

Built by `server/broker.py`; driven by images that `runtime/controller/controller.py` publishes, and by timers.
"""
