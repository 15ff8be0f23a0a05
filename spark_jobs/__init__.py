"""PySpark pipelines over the standard Kafka source: market trades in, bars out. They run against any Kafka."""
