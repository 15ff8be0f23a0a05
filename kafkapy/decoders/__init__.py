"""Decodes keys and values of records for people: shared by `kafkapy consume` and the console.

formats.py names the formats; row.py writes a record as a JSON object that restores it exactly; registry.py finds the
schemas of Avro, Protobuf and JSON Schema; schemas.py decodes by them.
"""
