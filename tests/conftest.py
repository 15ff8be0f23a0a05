"""For all tests: no property is judged by the clock, which on a shared machine says nothing."""

from hypothesis import HealthCheck, settings

settings.register_profile("kafkapy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kafkapy")
