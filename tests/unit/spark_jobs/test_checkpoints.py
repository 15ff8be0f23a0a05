"""What is read from the files of a checkpoint, and what of them is refused."""

import pytest

pytest.importorskip("pyspark")

from spark_jobs.checkpoints import BatchOffsets, parse_initial_offsets, parse_offsets, require_first_batch
from spark_jobs.errors import JobError

METADATA = '{"batchWatermarkMs":1700,"batchTimestampMs":1}'


def test_the_offsets_of_several_sources_are_one() -> None:
    """As Spark 4.2 writes a join of two topics; "-" is a source without an offset yet."""
    text = f'v1\n{METADATA}\n{{"trades":{{"0":3,"1":0}}}}\n-\n{{"seconds":{{"0":9}}}}'
    assert parse_offsets(text) == BatchOffsets({"trades": {"0": 3, "1": 0}, "seconds": {"0": 9}}, 1700)


@pytest.mark.parametrize("text", ["", "v1", f"v1\n{METADATA}", f"v2\n{METADATA}\n{{}}", "v1\n{}\n{}", "v1\nx\n{}"])
def test_what_spark_did_not_write_is_refused(text: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        parse_offsets(text)


def test_the_first_offsets_stand_after_a_zero_byte_and_the_version() -> None:
    assert parse_initial_offsets('\0v1\n{"trades":{"0":5}}') == {"trades": {"0": 5}}
    with pytest.raises(ValueError):
        parse_initial_offsets("\0v1\n")


def test_a_checkpoint_that_has_lost_its_first_batch_says_how_to_keep_it() -> None:
    require_first_batch("c", [0, 1])
    for kept, first in (([12, 13], "12"), ([], "none")):
        with pytest.raises(
            JobError, match=rf"^c begins with batch {first}, .* spark\.sql\.streaming\.minBatchesToRetain"
        ):
            require_first_batch("c", kept)
