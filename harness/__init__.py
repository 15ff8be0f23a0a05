"""Broker processes, of kafkapy and of Apache Kafka, started and stopped alike: for tests and benchmarks."""
