"""Decodes keys and values of records for people: for `kafkapy consume`, the console, and the embedded API.

formats.py     the formats by name
plain.py       formats without a schema: text, numbers, UUIDs, JSON, hex, base64, MessagePack
internal.py    Kafka's internal topics
registry.py schemas.py zigzag.py    schemas by id, and formats with them: Avro, Protobuf, JSON Schema
encode.py      encodes JSON values as a registry's serializers do
json_path.py   conditions on JSON
row.py         a record as a JSON object that restores it exactly
bounds.py errors.py    limits for hostile data; the error of a value that is not in its format
"""
