"""What a node tells of itself over HTTP, for machines that watch it: imported where kafkapy.admin.listener is set."""
