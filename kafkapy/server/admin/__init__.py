"""The HTTP endpoints for monitoring a node; imported only if kafkapy.admin.listener is set."""
