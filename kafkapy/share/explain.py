"""The in-flight records of a share partition as JSON: for `kafkapy groups explain`, and the console.

The JSON is a tagged field of DescribeGroups that Apache Kafka does not know; clients skip unknown tags (KIP-482). If
the request carries the IN_FLIGHT_TAG of kafkapy.group.explain, the response has the field for each group. A broker
answers for the partitions that it leads, whoever coordinates the group. Responses to other requests never have the
field. The value:

    [{"topic": "orders", "partition": 0, "state": "active", "start_offset": 5, "next_offset": 30,
      "log_start_offset": 0, "high_watermark": 40, "last_stable_offset": 40, "reads_committed": false,
      "max_record_locks": 2000, "delivery_count_limit": 5, "members": ["..."], "runs_left_out": 0,
      "runs": [{"first_offset": 5, "last_offset": 9, "state": "acquired", "delivery_count": 2, "member": "...",
                "until_ms": 1700000000000, "is_written": true}]}]

`next_offset` and later offsets have never been acquired. `until_ms` is the time of the wall clock at which the lock
of an acquired record times out, else null. `members` have a session with the broker. `is_written` is false while a
change is being written. Runs begin at the start offset; at most RUNS_SHOWN of them are shown.
"""

from typing import Any, Final

from kafkapy.named_tuple import NamedTuple
from kafkapy.share.in_flight_batch import Run
from kafkapy.share.partition import SharePartition
from kafkapy.share.record_state import RecordState

RUNS_SHOWN: Final = 200
PARTITIONS_SHOWN: Final = 1_000


class Now(NamedTuple):
    """The current time of both clocks."""

    monotonic_ms: int
    wall_ms: int


def explain_partition(machine: SharePartition, now: Now) -> dict[str, Any]:
    """Return the fields of the share partition itself; the caller adds those of its topic and sessions."""
    records, settings = machine.records, machine.settings
    runs: list[dict[str, Any]] = []
    left_out_count = 0
    for batch in records:
        for run in batch.runs:
            if run.last_offset < records.start_offset:
                continue
            if len(runs) < RUNS_SHOWN:
                runs.append(_run(run, records.start_offset, now))
            else:
                left_out_count += 1
    return {
        "state": machine.state.name.lower(),
        "start_offset": records.start_offset,
        "next_offset": records.end_offset + 1 if len(records) else records.end_offset,
        "max_record_locks": settings.max_record_locks,
        "delivery_count_limit": settings.delivery_count_limit,
        "runs": runs,
        "runs_left_out": left_out_count,
    }


def _run(run: Run, start_offset: int, now: Now) -> dict[str, Any]:
    is_locked = run.state is RecordState.ACQUIRED and run.deadline_ms is not None
    return {
        "first_offset": max(run.first_offset, start_offset),
        "last_offset": run.last_offset,
        "state": run.state.name.lower(),
        "delivery_count": run.delivery_count,
        "member": run.member_id,
        "until_ms": now.wall_ms + (run.deadline_ms or 0) - now.monotonic_ms if is_locked else None,
        "is_written": run.transition is None,
    }
