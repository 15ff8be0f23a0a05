"""The benchmark of queues: what its member processes print is read whole."""

import sys

from benchmarks.queues import run_members


def test_lines_that_a_member_prints_at_once_are_all_counted() -> None:
    printing = "import time; print('[1.0, 2.0, 3]\\n[3.0, 4.0, 5]', flush=True); time.sleep(60)"
    assert run_members([sys.executable, "-c", printing], members=1, count=8) == ([1.0, 2.0, 3.0, 4.0], 8)
