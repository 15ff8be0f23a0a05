"""The limits that a broker makes of its configuration: on connections, and on the files that it keeps open."""

import resource
from collections.abc import Iterator

import pytest

from kafkapy.config.dynamic import DynamicConfig
from kafkapy.config.load import load
from kafkapy.reactor.limits import ReactorLimits
from kafkapy.server.limits import MAX_OPEN_FILES, MIN_OPEN_FILES, changed_limits, limits_at_start, open_file_capacity

PROPERTIES = {
    "process.roles": "broker",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
}


def with_overrides(text: str) -> tuple[ReactorLimits, list[str]]:
    """Return the limits of a broker that had 127.0.0.2:2 and learns of these, and the warnings."""
    config = DynamicConfig(load(PROPERTIES)[0])
    config.update(cluster={"max.connections.per.ip.overrides": "127.0.0.2:2"}, broker={})
    limits = [limits_at_start(config.static, config.current)]
    config.add_listener(lambda before, after: limits.append(changed_limits(limits[-1], before, after)))
    warnings = config.update(cluster={"max.connections.per.ip.overrides": text}, broker={})
    at_start = limits_at_start(config.static, config.current)
    assert at_start.max_connections_per_ip_overrides in ({}, limits[-1].max_connections_per_ip_overrides)
    return limits[-1], warnings


@pytest.mark.parametrize(
    ("text", "overrides"),
    [
        ("127.0.0.3:3", {"127.0.0.3": 3}),
        ("127.0.0.3:3, ,", {"127.0.0.3": 3}),
        ("[::1]:3", {"0:0:0:0:0:0:0:1": 3}),
        ("", {}),
        (f"a..b:3,{'x' * 64}:4", {"127.0.0.2": 2}),
    ],
)
def test_connections_of_an_address_are_bounded_by_what_is_set_at_run_time(text: str, overrides: dict[str, int]) -> None:
    limits, warnings = with_overrides(text)
    assert limits.max_connections_per_ip_overrides == overrides
    assert not warnings


@pytest.mark.parametrize("text", ["7", "127.0.0.3:2147483648"])
def test_a_broker_ignores_overrides_that_it_cannot_use(text: str) -> None:
    limits, warnings = with_overrides(text)
    assert limits.max_connections_per_ip_overrides == {"127.0.0.2": 2}
    assert len(warnings) == 1


@pytest.fixture
def limits() -> Iterator[tuple[int, int]]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(("descriptors", "files"), [(900, 500), (300, 125), (100, MIN_OPEN_FILES)])
def test_two_thirds_of_the_descriptors_are_for_files_but_those_that_are_kept(
    limits: tuple[int, int], descriptors: int, files: int
) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, limits[1]))
    assert open_file_capacity() == files


def test_open_files_have_a_bound_whatever_the_process_may_have() -> None:
    assert MIN_OPEN_FILES <= open_file_capacity() <= MAX_OPEN_FILES
