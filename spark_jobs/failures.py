"""Turns errors of Spark into one line that says what to do."""

import re

from spark_jobs.config import SparkConfig, StreamConfig

KNOWN: list[tuple[str, str]] = [
    (
        r"CANNOT_LOAD_STATE_STORE|MALFORMED_LOG_FILE|Failed to read log file",
        "the checkpoint {checkpoint} is corrupt ({cause}): restore it, or start with --reset-output, which removes "
        "checkpoint and output and writes it anew",
    ),
    (
        r"Multiple streaming jobs detected|CONCURRENT_STREAM_LOG_UPDATE",
        "another driver goes on with the checkpoint {checkpoint}, so this one has ended: run one at a time, and start "
        "it again once the other has ended; nothing is lost",
    ),
    (
        r"STATEFUL_OPERATOR_NOT_MATCH|STATE_STORE_(KEY|VALUE)_SCHEMA|STATE_STORE_SCHEMA|StateSchemaNotCompatible",
        "the checkpoint {checkpoint} is one of another job ({cause}): give this job its own",
    ),
    (r"PATH_NOT_FOUND", "a directory of the configuration is not there ({cause}): correct its name"),
    (
        r"UnknownTopicOrPartitionException|UnknownTopic",
        "a topic of {topics} does not exist on {servers}: create it, or correct topics",
    ),
    (
        r"[Tt]opic \S+ (with partition count \d+ is )?not present in metadata",
        "a topic that the job writes is gone from {servers} ({cause}): create it again, nothing of the batch is lost",
    ),
    (
        r"(TimeoutException|Timed out|Timeout).*(listTopics|describeTopics|listNodes|fetchMetadata|node assignment)",
        "no broker answers at {servers}: is it running, is the address right?",
    ),
    (
        r"No resolvable bootstrap urls|Failed to create new KafkaAdminClient",
        "the Kafka client cannot start with bootstrap_servers {servers} and the options under kafka: {cause}",
    ),
    (
        r"SaslAuthenticationException|SslAuthenticationException|AuthorizationException",
        "{servers} refuses this client: {cause}; correct the security options under kafka",
    ),
    (
        r"Python worker failed to connect back",
        "Spark waited 10 seconds for a Python worker: end what else keeps this machine busy and start again, or set "
        "PYSPARK_PYTHON to a Python that has these packages",
    ),
    (
        r"is bigger than spark\.driver\.maxResultSize",
        "a batch is too large for the driver ({cause}): raise spark.driver.maxResultSize (under spark) for this one, "
        "and set max_offsets_per_trigger for those to come",
    ),
    (
        r"OutOfMemoryError",
        "Spark's memory does not suffice ({cause}): raise spark.driver.memory and spark.executor.memory (under spark), "
        "or set max_offsets_per_trigger",
    ),
    (
        r"failOnDataLoss|was changed from|may have been missed|OffsetOutOfRange|KAFKA_DATA_LOSS",
        "records were deleted before they were read ({cause}): to go on without them, set fail_on_data_loss: false",
    ),
]

PY4J = "An error occurred while calling "
NOISE = [
    r"^: ",
    r"\b(?:[a-z0-9_]+\.)+(?=[A-Z])",
    r"\[STREAM_FAILED\] Query \[id = \S+, runId = \S+\] terminated with exception: ",
    r"\.? *SQLSTATE: \w+;?\s*$",
]
"""The parts of a cause's line that are removed: Py4J's colon, packages of classes, Spark's general words, a code."""


def message_of(error: BaseException, config: SparkConfig) -> str:
    """Return the line for an exception of Spark or of its gateway (Py4J)."""
    text = " ".join(str(error).split())
    topics = config.topic_pattern or ", ".join(config.topics) if isinstance(config, StreamConfig) else "the input"
    checkpoint = config.checkpoint if isinstance(config, StreamConfig) else "none"
    words = {"servers": config.bootstrap_servers, "topics": topics, "checkpoint": checkpoint}
    words["cause"] = cause(str(error))
    for pattern, line in KNOWN:
        if re.search(pattern, text):
            return line.format(**words)
    return f"Spark failed: {words['cause']} (SPARK_JOBS_TRACE=1 shows all)"


def cause(text: str) -> str:
    """Return the innermost "Caused by" of a Java stack trace, or its first line, without packages of classes."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith(PY4J):
        del lines[0]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    line = causes[-1] if causes else (lines[0] if lines else "no message")
    for noise in NOISE:
        line = re.sub(noise, "", line)
    return line[:300]
