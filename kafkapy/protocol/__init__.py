"""Kafka's wire protocol without sockets: encodes and decodes messages. Submodules are imported on demand. Pure.

primitives.py message.py element_budget.py    types on the wire; messages' base class; a bound of a request's elements
messages/ codegen/       a generated module for each message, and the program that generates them
api.py api_table.py error_code.py field_table.py    the APIs and their classes; the (generated) tables
headers.py               the headers of requests and responses
connection.py partial_frame.py kept_responses.py foreign.py    a server's connection: bytes -> requests, responses ->
                         bytes, in order
serving.py traffic.py    the interface between such a connection, its driver and the router; counts of its bytes
client_connection.py client_login.py response_error.py    an outbound connection, its login, an error in a response
json_lines.py            messages as JSON, for tools

Connections are driven by `reactor/link.py`, outbound ones by `runtime/peer.py`.
"""
