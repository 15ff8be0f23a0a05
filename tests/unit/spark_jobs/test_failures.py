"""What Spark and its gateway say, as the one line that a job says."""

import re

import pytest

from spark_jobs.bronze import BronzeConfig
from spark_jobs.failures import cause, message_of

CONFIG = BronzeConfig(bootstrap_servers="b:1", topics=["trades"], checkpoint="c", output="o")
STARTED = """An error occurred while calling o83.start.
: java.io.IOException: mkdir of file:/proc/x failed
\tat org.apache.hadoop.fs.FileSystem.primitiveMkdir(FileSystem.java:1355)
"""
FAILED = (
    "[STREAM_FAILED] Query [id = 8fa5868e-56d0, runId = 486361ae-44f2] terminated with exception: %s SQLSTATE: XXKST"
)
NO_DELTA = (
    "Job aborted due to stage failure: Lost task 1.0: org.apache.spark.SparkException: "
    "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS] An error occurred during loading state. Error reading "
    "delta file file:/c/state/0/1/1.delta: it does not exist. at TopicPartition.scala"
)
TOO_LARGE = (
    "Job aborted due to stage failure: Total size of serialized results of 9 tasks (1026.0 MiB) is bigger than "
    "spark.driver.maxResultSize (1024.0 MiB)"
)
NO_TOPIC = "org.apache.kafka.common.errors.TimeoutException: Topic bars not present in metadata after 60000 ms."


def test_a_cause_is_the_innermost_one_without_what_surrounds_it():
    assert cause(STARTED) == "IOException: mkdir of file:/proc/x failed"
    assert cause(STARTED + "Caused by: java.io.EOFException: cut\n") == "EOFException: cut"
    assert cause(FAILED % "Expected e.g. {}, got x") == "Expected e.g. {}, got x"
    assert cause("") == "no message"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (FAILED % NO_DELTA, r"the checkpoint c is corrupt \(.*\): restore it, or start with --reset-output"),
        (FAILED % "Failed to read log file file:/c/commits/1.", "the checkpoint c is corrupt"),
        (
            FAILED % "Concurrent update to the log. Multiple streaming jobs detected for 3.",
            "another driver goes on with .* c,",
        ),
        (FAILED % "[STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA] x", "is one of another job"),
        ("[PATH_NOT_FOUND] Path does not exist: file:/nope. SQLSTATE: 42K03", r"not there \(.*file:/nope\): correct"),
        (FAILED % "org.apache.kafka...UnknownTopicOrPartitionException: x", "a topic of trades does not exist on b:1"),
        (
            FAILED % NO_TOPIC,
            r"writes is gone from b:1 \(TimeoutException: Topic bars not present .*\): create it again",
        ),
        (
            FAILED % "Python worker failed to connect back.",
            "Spark waited 10 seconds for a Python worker: end what else",
        ),
        (FAILED % TOO_LARGE, r"too large for the driver \(.*\): raise spark.driver.maxResultSize"),
        (
            FAILED % "java.lang.OutOfMemoryError: Java heap space",
            "memory does not suffice .*: raise spark.driver.memory",
        ),
        (FAILED % "something else", r"Spark failed: something else \(SPARK_JOBS_TRACE=1 shows all\)"),
    ],
)
def test_a_failure_of_spark_is_one_line(text, line):
    found = message_of(Exception(text), CONFIG)
    assert "\n" not in found
    assert re.search(line, found), found
