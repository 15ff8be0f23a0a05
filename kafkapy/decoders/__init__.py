"""Decodes keys and values of records for people: shared by `kafkapy consume` and the console, which call it.

formats.py     the formats by name
plain.py       those without a schema: text, numbers, UUIDs, JSON, hex, base64, MessagePack
internal.py    Kafka's internal topics
registry.py schemas.py zigzag.py    schemas by number, and what is decoded by them: Avro, Protobuf, JSON Schema
encode.py      JSON values as a registry's serializers write them
json_path.py   conditions on JSON
row.py         a record as a JSON object that restores it exactly
bounds.py errors.py    what hostile data may cost; the error of a value that is not in its format
"""
