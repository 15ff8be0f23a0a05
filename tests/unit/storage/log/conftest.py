"""What the tests of logs share."""

import pytest

from tests.simulator.disk import SimDisk


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()
