"""Checks before a job reads anything that its checkpoint and its output fit together; --reset-output empties both.

A streaming query without its checkpoint begins at batch 0 again. With an existing output it would lose or repeat rows:
Spark's file sink discards batches that its own log has, a Kafka sink appends. So a job whose checkpoint is missing, but
not its output, refuses to start until --reset-output. Output is a directory with files, or a topic with records.

A topic is emptied, never deleted, so that its offsets continue, and its readers can: its records are deleted. Brokers
refuse that for a topic that is only compacted; each of its keys gets a tombstone. An output topic belongs to one job.
The dead-letter topic does not: jobs may share it. The key of a dead letter is the topic, partition and offset of its
record, so a job that starts again replaces its earlier dead letters.
"""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.admin import matcher, open_admin
from spark_jobs.checkpoints import Directory, check, last_topics
from spark_jobs.config import StreamConfig, TopicConfig
from spark_jobs.errors import JobError
from spark_jobs.sink import fence_earlier, write_topic
from spark_jobs.source import read_topics_once

RESET = "start with --reset-output, which empties the output and writes it anew"


def prepare(spark: SparkSession, config: StreamConfig, job: str = "", *, reset_output: bool = False) -> None:
    """Check that checkpoint and output fit together; with reset_output remove both. Raises JobError.

    job: whose transactional ids these are, of a job with topics in transactions.
    """
    refuse_own_topics(spark, config)
    checkpoint = Directory.at(spark, config.checkpoint)
    outputs = [Directory.at(spark, path) for path in config.outputs()]
    if reset_output:
        if isinstance(config, TopicConfig) and config.delivery == "exactly_once" and config.output_topics():
            with open_admin(spark, config.bootstrap_servers, config.kafka) as admin:
                there = set(config.output_topics()) & admin.topic_names()
            for topic in sorted(there):
                fence_earlier(config, job, topic)
        filled = topics_with_records(spark, config)
        checkpoint.remove()  # first: a job that is killed from here on refuses to start, until it is reset again
        for topic in filled:
            empty(spark, config, topic)
        for directory in outputs:
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


def refuse_own_topics(spark: SparkSession, config: StreamConfig) -> None:
    """Raise JobError if the topic_pattern matches a topic that the job writes."""
    if not config.topic_pattern:
        return
    matches = matcher(spark, config.topic_pattern)
    for topic in filter(matches, config.topics_of_batches()):
        raise JobError(
            f"topic_pattern {config.topic_pattern} matches {topic}, which this job writes: it would read it again and "
            f"again; name another topic, or leave it out of the pattern"
        )


def refuse_other_topics(config: StreamConfig, checkpoint: Directory) -> None:
    """Raise JobError if the checkpoint has topics that the job no longer reads.

    Spark would plan a batch without them, write it to the checkpoint, and then fail because of the lost topics, in this
    run and in all later ones.
    """
    gone = sorted(last_topics(checkpoint) - set(config.input_topics()))
    if gone and config.topics and config.fail_on_data_loss:
        raise JobError(
            f"the checkpoint {config.checkpoint} is of {', '.join(gone)}, which topics does not name: correct topics "
            f"or checkpoint, or set fail_on_data_loss: false"
        )


def topics_with_records(spark: SparkSession, config: StreamConfig) -> list[str]:
    """Return the job's output topics that have records. Raises JobError if no broker answers."""
    if not config.output_topics():
        return []
    with open_admin(spark, config.bootstrap_servers, config.kafka) as admin:
        counts = admin.partition_counts(set(config.output_topics()) & admin.topic_names())
        begins, ends = admin.earliest(counts), admin.latest(counts)
    return sorted({topic for (topic, partition), end in ends.items() if end > begins[topic, partition]})


def empty(spark: SparkSession, config: StreamConfig, topic: str) -> None:
    """Empty a topic: delete its records, or write a tombstone for each key if it is only compacted."""
    with open_admin(spark, config.bootstrap_servers, config.kafka) as admin:
        if "delete" in admin.topic_config(topic)["cleanup.policy"]:
            admin.delete_records(admin.latest(admin.partition_counts([topic])))
            return
    keys = read_topics_once(spark, config, [topic]).select("key").distinct()
    write_topic(keys.withColumn("value", F.lit(None).cast("binary")), config, topic)
