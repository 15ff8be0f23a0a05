"""A schema registry with Confluent's HTTP API, for any Kafka: `kafkapy registry` and `Broker(registry=True)`.

Its state is the topic _schemas, in Confluent's records. These modules are pure:

registry.py schemas.py            look-ups and writes, decided on the state: begin here; parsed schemas
model.py subjects.py errors.py    schemas, levels and modes; subjects and contexts; errors of the API
records.py state.py               records of the topic; the state that their replay makes
formats/                          Avro, JSON Schema, Protobuf: parse, print, compare
compatibility.py settings.py      the seven levels of compatibility; a subject's settings
request.py metadata_rules.py      the bodies of requests

And these do IO, in threads of their own:

cluster.py schemas_topic.py       connections to brokers; reads the topic and appends to it
election.py fence.py              elects the registry that writes; fences earlier leaders
retries.py                        logs requests that are tried again
http/                             the API
node.py embedded.py main.py       a whole registry; one in a program; the command
"""
