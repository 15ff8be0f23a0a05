"""Bytes to messages and back: Kafka's wire protocol without a socket. Nothing is imported before it is asked for."""
