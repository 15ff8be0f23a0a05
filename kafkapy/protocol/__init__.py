"""Kafka's wire protocol without sockets: encodes and decodes messages. Submodules are imported on demand."""
