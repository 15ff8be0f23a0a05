"""Share groups as pure machines, without network, disk or clock (KIP-932): queues over partitions.

Imported when the first request of a share group arrives: most brokers have none.

persister.py    the seam between a share partition and its persisted state
"""
