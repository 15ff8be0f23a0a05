"""A node as a process: builds its parts from the configuration, starts them in order, stops them in reverse.

run.py            the process, until a signal or a failure: begin here
node.py quorum_node.py    the parts that every node has; its part in the metadata quorum
broker.py controller.py   a node with the broker role; one that is only a controller
broker_logs.py client_edge.py coordinators.py replication.py telemetry.py    parts of a broker
share_reads.py dead_letters.py    its part in share groups, made when it is first needed
listeners.py peers.py transaction_links.py    addresses it listens on; connections to other nodes
limits.py client_quotas.py measuring.py telemetry_forwarder.py    bounds; quotas; counted requests; client metrics
stopping.py       all steps of a stop, even if some fail
formatted.py secure_setup.py    reads the files of `storage format`; `kafkapy security init`
login/ tls/       logins and TLS as configured
process/          log lines, systemd, clock, memory
admin/            health and metrics over HTTP
cluster/ migration/    `kafkapy cluster`: nodes on one machine; taking over a cluster of Apache Kafka
"""
