"""What clients from 0.9 on asked of a broker and Apache Kafka 4 removed (KIP-896): kafkapy.legacy.clients.enable=true.

Each handler turns a request into the oldest version still served, and the answer back; what a version means is theirs.
"""
