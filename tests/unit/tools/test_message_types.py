from pathlib import Path
from zlib import crc32

import pytest

from tools.message_types import main

SOURCE = """
from kafkapy.protocol.messages.metadata_request import MetadataRequestTopic
from kafkapy.protocol.messages.offset_commit_response import OffsetCommitResponsePartition
from kafkapy.types import TopicPartition

FIRST = MetadataRequestTopic(bytes(16), name="a")
SECOND = MetadataRequestTopic(bytes(16), "a")
THIRD = MetadataRequestTopic(topic="a")
FOURTH = MetadataRequestTopic(name=7)
FIFTH = OffsetCommitResponsePartition(0)
SIXTH = MetadataRequestTopic(**{"name": "a"})
OTHER = TopicPartition("a", "b")
"""


def test_calls_of_messages_that_do_not_fit_are_found_and_no_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # mypy's cache knows a module by its name, and repeats the path under which it saw it.
    path = tmp_path / f"planted_{crc32(bytes(tmp_path)):x}.py"
    path.write_text(SOURCE)

    assert main([str(path)]) == 1

    lines = capsys.readouterr().out.splitlines()
    assert [line.removeprefix(f"{path}:").partition(":")[0] for line in lines] == ["7", "8", "9", "10"]
