"""kafkapy beside Apache Kafka 4.3.1: the same load, the same client, the same run."""
