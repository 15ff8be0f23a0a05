"""A log's segments in order: the last one is active."""

from random import Random

from kafkapy.config.log import LogConfig
from kafkapy.storage.segment.open_files import OpenFiles
from kafkapy.storage.segment.segment import Segment
from kafkapy.storage.segment.segments import Segments
from tests.simulator.disk import SimDisk


def test_the_last_segment_is_active_whatever_is_added_replaced_and_removed() -> None:
    files, segments, random = OpenFiles(SimDisk(0)), Segments(), Random(5)
    present: dict[int, Segment] = {}
    for _ in range(300):
        base_offset = random.randrange(0, 100, 10)
        if base_offset in present and random.random() < 0.7:
            segments.remove(present.pop(base_offset))
        else:
            present[base_offset] = Segment(files, "/data/t-0", base_offset, LogConfig(), now_ms=0)
            segments.add(present[base_offset])
        assert segments.all() == [present[each] for each in sorted(present)]
        if present:
            assert segments.active is present[max(present)]
