"""franz-go's GroupTransactSession through kill -9 of the broker and of its processes: the copies equal the sources."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.servers import Server
from tests.compat.conftest import new_server
from tests.support.copying import (
    BROKER_PROPERTIES,
    LOAD,
    SOURCES,
    check_copies_through_kills,
    fill_sources,
    only_soaked,
)
from tools.go_clients import COPIER, build

pytestmark = pytest.mark.long


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Server]:
    if not COPIER.exists():
        pytest.skip("franz-go's copier is missing: install Go 1.26 and run `make tools`")
    why_not = build(COPIER, offline=True)
    if why_not:
        pytest.skip(why_not)
    with new_server(tmp_path / "data", BROKER_PROPERTIES) as running:
        fill_sources(running.bootstrap, LOAD.records)
        yield running


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=only_soaked)])
def test_franz_gos_copies_are_exact(broker: Server, protocol: str) -> None:
    command = [str(COPIER), broker.bootstrap, "copiers", protocol]
    of_load = [str(LOAD.transaction_records), *SOURCES]
    check_copies_through_kills(broker, [[*command, f"copier-{slot}", *of_load] for slot in range(2)])
