import errno

import pytest

from kafkapy.storage.log_dir import RESUME_FREE_BYTES, LogDirState
from kafkapy.storage.manager.space_reserve import RESERVE_BYTES, RESERVE_FILE, SpaceReserve
from tests.simulator.disk import SimDisk

PATH = f"/d/{RESERVE_FILE}"


def disk_with_reserve() -> tuple[SimDisk, SpaceReserve]:
    disk = SimDisk()
    disk.make_directory("/d")
    reserve = SpaceReserve(disk, "/d")
    reserve.renew()
    return disk, reserve


def test_what_a_failed_write_left_is_no_reserve() -> None:
    disk, reserve = disk_with_reserve()
    whole_bytes = len(disk.read_file(PATH))
    assert RESERVE_BYTES - 100 < whole_bytes <= RESERVE_BYTES
    disk.delete(PATH)
    disk.fail("write", errno.ENOSPC, path=PATH)
    with pytest.raises(OSError, match="No space left"):
        reserve.renew()
    assert not disk.exists(PATH)


def test_a_reserve_that_a_kill_left_short_is_written_again() -> None:
    disk, reserve = disk_with_reserve()
    whole_bytes = len(disk.read_file(PATH))
    disk.open(PATH).truncate(4096)
    reserve.renew()
    assert len(disk.read_file(PATH)) == whole_bytes


def test_a_reserve_is_given_up_where_metadata_need_it_and_records_wait() -> None:
    disk, reserve = disk_with_reserve()
    state = LogDirState("/d", free_bytes=disk.free_bytes)
    disk.capacity_bytes = disk.used_bytes() + RESERVE_BYTES
    reserve.keep_for_metadata([state])
    assert (disk.exists(PATH), state.is_full) == (True, False)
    disk.capacity_bytes -= 1
    reserve.keep_for_metadata([state])
    assert (disk.exists(PATH), state.is_full) == (False, True)
    reserve.renew()
    assert not disk.exists(PATH), "what was given up is not taken back before there is more"
    disk.capacity_bytes = disk.used_bytes() + RESUME_FREE_BYTES
    reserve.renew()
    assert disk.exists(PATH)
