"""Generates `protocol/messages/` and the tables from `protocol_specs/`: `make generate`, never at run time.

spec.py         a JSON schema -> a checked MessageSpec
layout.py       the bytes of each struct in each version; versions with the same bytes share a layout
emit.py read_function.py write_function.py    a message's module: classes, straight-line readers and writers
tables.py text.py    the tables; lines and names of generated source
generate.py __main__.py    all files, written or compared (--check)
"""
