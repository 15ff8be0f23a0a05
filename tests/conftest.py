"""For all tests: no property is judged by the clock, and each run tries the same examples, `make soak` others."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "kafkapy",
    deadline=None,
    derandomize="KAFKAPY_SOAK_SEEDS" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("kafkapy")
