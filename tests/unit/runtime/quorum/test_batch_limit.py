"""What the metadata log does not take is refused before it reaches the disk."""

import pytest

from kafkapy.config.quorum import QuorumConfig
from kafkapy.errors import ApiError
from tests.simulator.disk import SimDisk
from tests.simulator.loop import SimLoop
from tests.support.quorums import append, format_standalone, new_quorum


@pytest.mark.parametrize("max_bytes", [5000, 8 << 20])
async def test_a_batch_that_the_log_would_not_take_is_refused(loop: SimLoop, max_bytes: int) -> None:
    disk = SimDisk()
    format_standalone(disk)
    config = QuorumConfig(internal_metadata_max_batch_size_in_bytes=max_bytes)
    quorum = new_quorum(loop, disk, config=config)
    await quorum.start()
    with pytest.raises(ApiError, match="metadata records in one batch"):
        await append(quorum, b"a" * max_bytes)
    assert await append(quorum, b"a" * (max_bytes - 100)) == 3
    await quorum.close()
