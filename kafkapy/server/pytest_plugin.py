"""The pytest plugin that every install of kafkapy brings: the `kafka_broker` fixture."""
