"""A job's checkpoint and its output belong together; what does not fit is refused before anything is read.

A streaming query that starts without its checkpoint begins at batch 0 again. Over an output that is already there it
would lose or repeat: Spark's file sink discards the batches that its own log knows, a Kafka sink appends. So a job
whose checkpoint is missing while its output is not refuses to start, until --reset-output has emptied both. An output
is a directory that holds anything, or a topic that holds a record.

A topic is emptied, never deleted, so that offsets go on and its readers with them: its records are deleted; of a topic
that is only compacted, where brokers refuse that, each key gets a tombstone. An output topic belongs to one job. The
topic of dead letters does not: jobs may share it, its records are keyed by where each came from, and those of a job
that starts anew take the place of the ones before.
"""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.admin import open_admin
from spark_jobs.checkpoints import Directory, check, last_topics
from spark_jobs.config import StreamConfig
from spark_jobs.errors import JobError
from spark_jobs.sink import write_topic
from spark_jobs.source import read_topics_once

RESET = "start with --reset-output, which empties the output and writes it anew"


def prepare(spark: SparkSession, config: StreamConfig, *, reset_output: bool = False) -> None:
    """Make sure that checkpoint and output fit together. Raises JobError that says what to do."""
    checkpoint = Directory.at(spark, config.checkpoint)
    outputs = [Directory.at(spark, path) for path in config.outputs()]
    if reset_output:
        for topic in topics_with_records(spark, config):
            empty(spark, config, topic)
        for directory in (*outputs, checkpoint):
            directory.remove()
        return
    if not checkpoint.is_empty():
        check(checkpoint)
        refuse_other_topics(config, checkpoint)
        return
    missing = f"the checkpoint {config.checkpoint} is missing but its output"
    for output in outputs:
        if not output.is_empty():
            raise JobError(f"{missing} {output.path} is not: bring the checkpoint back, or {RESET}")
    for topic in topics_with_records(spark, config):
        raise JobError(
            f"{missing} is not, topic {topic} on {config.bootstrap_servers} holds records: bring the checkpoint back, "
            f"name a topic of this job alone, or {RESET}"
        )


def refuse_other_topics(config: StreamConfig, checkpoint: Directory) -> None:
    """Raise JobError where the checkpoint is of topics that the job shall no longer read: Spark would first plan a
    batch without them, write it down, and then fail for what it has lost, now and ever after.
    """
    gone = sorted(last_topics(checkpoint) - set(config.input_topics()))
    if gone and config.topics and config.fail_on_data_loss:
        raise JobError(
            f"the checkpoint {config.checkpoint} is of {', '.join(gone)}, which topics does not name: correct topics "
            f"or checkpoint, or set fail_on_data_loss: false"
        )


def topics_with_records(spark: SparkSession, config: StreamConfig) -> list[str]:
    """Return the job's output topics that hold records. Raises JobError where no broker answers."""
    if not config.output_topics():
        return []
    with open_admin(spark, config.bootstrap_servers, config.kafka) as admin:
        counts = admin.partition_counts(set(config.output_topics()) & admin.topic_names())
        begins, ends = admin.earliest(counts), admin.latest(counts)
    return sorted({topic for (topic, partition), end in ends.items() if end > begins[topic, partition]})


def empty(spark: SparkSession, config: StreamConfig, topic: str) -> None:
    """Let a topic hold nothing: delete its records, or give each key a tombstone where it is only compacted."""
    with open_admin(spark, config.bootstrap_servers, config.kafka) as admin:
        if "delete" in admin.topic_config(topic)["cleanup.policy"]:
            admin.delete_records(admin.latest(admin.partition_counts([topic])))
            return
    keys = read_topics_once(spark, config, [topic]).select("key").distinct()
    write_topic(keys.withColumn("value", F.lit(None).cast("binary")), config, topic)
