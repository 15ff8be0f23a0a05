"""kafkapy beside Apache Kafka 4.4.0: the same load, the same client, the same run."""
