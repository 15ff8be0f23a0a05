"""For all tests: no property is judged by the clock, and each run tries the same examples, `make soak` others.

A test whose name differs from process to process is refused: pytest-xdist would run nothing at all.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "kafkapy",
    deadline=None,
    derandomize="KAFKAPY_SOAK_SEEDS" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("kafkapy")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid}: an address in a test's name; give the parameters ids")
