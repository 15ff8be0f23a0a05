"""The Java client and Apache Kafka's own tools against a broker process."""

import json
import re

TOOLS = "org.apache.kafka.tools"


def test_topic_command(java_tool, bootstrap, topic):
    def topics(*arguments: str) -> str:
        return java_tool(f"{TOOLS}.TopicCommand", "--bootstrap-server", bootstrap, *arguments)

    options = ["--partitions", "3", "--replication-factor", "1", "--config", "retention.ms=7200000"]
    assert f"Created topic {topic}." in topics("--create", "--topic", topic, *options)
    assert topic in topics("--list").splitlines()
    described = topics("--describe", "--topic", topic)
    assert re.search(rf"Topic: {topic}\s+TopicId: \S{{22}}\s+PartitionCount: 3\s+ReplicationFactor: 1", described)
    assert "retention.ms=7200000" in described
    assert len(re.findall(r"Partition: \d+\s+Leader: 1\s+Replicas: 1\s+Isr: 1", described)) == 3
    topics("--alter", "--topic", topic, "--partitions", "4")
    assert "PartitionCount: 4" in topics("--describe", "--topic", topic)
    topics("--delete", "--topic", topic)
    assert topic not in topics("--list").splitlines()


def test_config_command(java_tool, bootstrap, topic):
    def configs(*arguments: str) -> str:
        return java_tool("org.apache.kafka.tools.ConfigCommand", "--bootstrap-server", bootstrap, *arguments)

    java_tool(f"{TOOLS}.TopicCommand", "--bootstrap-server", bootstrap, "--create", "--topic", topic)
    entity = ["--entity-type", "topics", "--entity-name", topic]
    configs("--alter", *entity, "--add-config", "max.message.bytes=2000000,cleanup.policy=[compact,delete]")
    described = configs("--describe", *entity)
    assert "max.message.bytes=2000000 sensitive=false" in described
    assert "cleanup.policy=compact,delete sensitive=false" in described
    configs("--alter", *entity, "--delete-config", "max.message.bytes")
    assert "max.message.bytes" not in configs("--describe", *entity)
    broker = configs("--describe", "--entity-type", "brokers", "--entity-name", "1", "--all")
    assert re.search(
        r"num\.network\.threads=3 sensitive=false synonyms=\{.*DEFAULT_CONFIG:num\.network\.threads=3", broker
    )


def test_console_producer_and_consumer(java_tool, bootstrap, topic):
    create = ["--create", "--topic", topic, "--partitions", "1"]
    java_tool(f"{TOOLS}.TopicCommand", "--bootstrap-server", bootstrap, *create)
    lines = "".join(f"k{n}:line {n}\n" for n in range(50))
    options = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
    arguments = ["--bootstrap-server", bootstrap, "--topic", topic, *options, "--compression-codec", "lz4"]
    java_tool(f"{TOOLS}.ConsoleProducer", *arguments, stdin=lines)
    partition = ["--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", "50"]
    properties = ["--formatter-property", "print.key=true", "--formatter-property", "key.separator=:"]
    read = java_tool(f"{TOOLS}.consumer.ConsoleConsumer", "--bootstrap-server", bootstrap, *partition, *properties)
    assert read == lines
    requested = ["--bootstrap-server", bootstrap, "--topic", topic]
    assert java_tool(f"{TOOLS}.GetOffsetShell", *requested).strip() == f"{topic}:0:50"
    assert java_tool(f"{TOOLS}.GetOffsetShell", *requested, "--time", "earliest").strip() == f"{topic}:0:0"


def test_transactions_command_describes_producers(java_tool, bootstrap, topic):
    """The console producer is idempotent by default: it leaves a producer id behind."""
    java_tool(f"{TOOLS}.ConsoleProducer", "--bootstrap-server", bootstrap, "--topic", topic, stdin="one\ntwo\n")
    described = java_tool(
        f"{TOOLS}.TransactionsCommand", "--bootstrap-server", bootstrap, "describe-producers",
        "--topic", topic, "--partition", "0",
    )  # fmt: skip
    heading, producer = described.strip().splitlines()
    assert heading.split() == [
        "ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp",
        "CurrentTransactionStartOffset",
    ]  # fmt: skip
    _, producer_epoch, coordinator_epoch, last_sequence, _, transaction = producer.split()
    assert (producer_epoch, last_sequence, transaction) == ("0", "1", "None")
    assert coordinator_epoch in ("-1", "0")


def test_producer_performance(java_tool, bootstrap, topic):
    load = ["--topic", topic, "--num-records", "20000", "--record-size", "100", "--throughput", "-1"]
    output = java_tool(f"{TOOLS}.ProducerPerformance", "--bootstrap-server", bootstrap, *load)
    assert output.startswith("20000 records sent")


def test_broker_api_versions_command(java_tool, bootstrap):
    output = java_tool(f"{TOOLS}.BrokerApiVersionsCommand", "--bootstrap-server", bootstrap)
    assert "Produce(0): 0 to 13 [usable: 13]" in output
    assert "Fetch(1): 4 to 18 [usable: 18]" in output


def test_metadata_quorum_command(java_tool, bootstrap):
    output = java_tool(f"{TOOLS}.MetadataQuorumCommand", "--bootstrap-server", bootstrap, "describe", "--status")
    assert re.search(r"LeaderId:\s+1\n", output)
    assert re.search(r"HighWatermark:\s+[1-9]\d*\n", output)


def test_log_dirs_command(java_tool, bootstrap, topic):
    java_tool(f"{TOOLS}.TopicCommand", "--bootstrap-server", bootstrap, "--create", "--topic", topic)
    arguments = ["--bootstrap-server", bootstrap, "--describe", "--topic-list", topic]
    assert f'"partition":"{topic}-0"' in java_tool(f"{TOOLS}.LogDirsCommand", *arguments)


def test_delete_records_command(java_tool, bootstrap, topic, tmp_path):
    load = ["--topic", topic, "--num-records", "10", "--record-size", "10", "--throughput", "-1"]
    java_tool(f"{TOOLS}.ProducerPerformance", "--bootstrap-server", bootstrap, *load)
    wanted = tmp_path / "offsets.json"
    wanted.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 4}]}))
    arguments = ["--bootstrap-server", bootstrap, "--offset-json-file", str(wanted)]
    output = java_tool(f"{TOOLS}.DeleteRecordsCommand", *arguments)
    assert f"partition: {topic}-0\tlow_watermark: 4" in output
