"""What went wrong inside Spark, as one line that says what to do."""

import re

from spark_jobs.config import SparkConfig, StreamConfig

KNOWN: list[tuple[str, str]] = [
    (
        r"UnknownTopicOrPartitionException|UnknownTopic|does not exist.*topic",
        "a topic of {topics} does not exist on {servers}: create it, or correct topics",
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
        r"failOnDataLoss|was changed from|may have been missed|OffsetOutOfRange|KAFKA_DATA_LOSS",
        "records were deleted before they were read ({cause}): to go on without them, set fail_on_data_loss: false",
    ),
]


def told(error: BaseException, config: SparkConfig) -> str:
    """Return the line for an exception of Spark or of its gateway."""
    text = " ".join(str(error).split())
    topics = config.topic_pattern or ", ".join(config.topics) if isinstance(config, StreamConfig) else "those asked for"
    words = {"servers": config.bootstrap_servers, "topics": topics, "cause": cause(str(error))}
    for pattern, line in KNOWN:
        if re.search(pattern, text):
            return line.format(**words)
    return f"Spark failed: {words['cause']} (SPARK_JOBS_TRACE=1 shows all)"


def cause(text: str) -> str:
    """Return the innermost "Caused by" of a Java stack trace, or the first line, without class names' packages."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    line = causes[-1].removeprefix("Caused by: ") if causes else (lines[0] if lines else "no message")
    return re.sub(r"\b(?:[a-z0-9_]+\.)+(?=[A-Z])", "", line)[:300]
