"""KAFKAPY_FAILPOINTS: what is refused. What it does is tests/scenarios/test_kill_at_failpoints.py's."""

import pytest

from kafkapy.errors import ConfigError
from kafkapy.server.process.failpoints import Failpoints


@pytest.mark.parametrize("text", ["log.roll.after_files", "log.roll.after_files=sleep", "a=kill@x"])
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="KAFKAPY_FAILPOINTS"):
        Failpoints(text)


def test_other_points_are_passed_by() -> None:
    points = Failpoints("a=kill@2;b=kill")
    points.on_reached("a")
    points.on_reached("c")
