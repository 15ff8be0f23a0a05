"""Generated: a module per message; see kafkapy.protocol.codegen."""
