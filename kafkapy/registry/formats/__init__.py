"""The formats of schemas, each imported with its first schema.

parsed.py        the interface of a schema of any format
avro.py          Avro: avro_model.py parses and prints, avro_rules.py compares (Avro's schema resolution)
json_schema.py   JSON Schema, checked by jsonschema: json_model.py, json_comparison.py, json_rules.py with
                 json_objects.py, json_arrays.py, matching.py and json_differences.py (which differences are harmless)
protobuf.py      Protobuf: proto_descriptors.py and proto_tree.py between the tree of a text and descriptors,
                 proto_known.py the files that need no reference, proto_text.py prints, proto_rules.py compares
"""
