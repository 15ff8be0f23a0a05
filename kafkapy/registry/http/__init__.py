"""The registry's HTTP API.

api.py       what each path answers: a table of methods and paths
paths.py     paths as they were sent: subjects may have slashes; contexts in front of them, aliases
forward.py   a write on a registry that does not lead goes to the one that does
app.py       the ASGI application: bodies, errors, basic authentication
server.py    uvicorn in a thread or in the foreground, TLS
"""
