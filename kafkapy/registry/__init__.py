"""A schema registry with Confluent's HTTP API, for any Kafka: `kafkapy registry` and `Broker(registry=True)`.

Its state is the topic _schemas, in Confluent's records. Machines decide, drivers do, here too; pure are

model.py subjects.py errors.py    schemas, levels and modes; contexts; what is refused
records.py state.py               records of the topic; what they amount to when they are replayed
formats/                          Avro, JSON Schema, Protobuf: parse, print, compare
compatibility.py settings.py      the seven levels; a subject's settings
request.py schemas.py registry.py    requests, parsed schemas, what is done with them

and these do IO, in threads of their own:

cluster.py schemas_topic.py       connections to brokers; the topic is read and appended to
election.py                       which of several registries writes
retries.py                        log lines of what is tried again
http/                             the API
node.py embedded.py main.py       a whole registry; one in a program; the command
"""
