"""The HTTP endpoints for monitoring a node; imported only if kafkapy.admin.listener is set.

serve.py listener.py http.py    /metrics, /livez, /readyz, /buildinfo, answered by a thread of its own
readiness.py broker_state.py    why a node is not ready; the phase of its start
metrics.py gauges.py windows.py    the text format; all values of a node; quantiles of the last minutes
rules.py names.py filters.py catalogue.py    names of JMX exporters; which series are shown; absent metrics of Kafka
broker_gauges.py replication_gauges.py traffic_gauges.py topic_gauges.py    values of brokers: replicas, bytes, topics
group_gauges.py share_gauges.py transaction_gauges.py coordinator_gauges.py    of groups and coordinators
quota_gauges.py telemetry_gauges.py    of clients
request_gauges.py network_gauges.py metadata_gauges.py own_gauges.py loop_watch.py    of every node

Driven by requests; between them only loop_watch.py measures.
"""
