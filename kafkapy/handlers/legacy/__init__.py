"""API versions that Apache Kafka 4 removed (KIP-896), for clients from 0.9 on: kafkapy.legacy.clients.enable=true.

Each handler converts a request to the oldest version that is still served, and the response back.

produce.py fetch.py list_offsets.py    records as message sets of magic 0 and 1; offsets by segment
create_topics.py delete_topics.py      administration
conversions.py                         runs heavy conversions on workers, within bounded memory

Called by `serving/router.py`; each calls the handler of today's version.
"""
