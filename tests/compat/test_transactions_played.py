"""A running broker answers and writes what Apache Kafka 4.4.0 did when the scripts of transactions were played to it.

tests/golden/test_transactions.py compares the coordinator alone; here are the handlers, the log, the markers and the
load at a start, too. Not played again: what differs in the coordinator's decisions alone (transaction_script.RECIPES).
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from harness.servers import Kafkapy
from tests.support import transaction_script as script
from tests.support.transaction_deviation import as_answered_here
from tests.support.transaction_text import text_of

pytestmark = [pytest.mark.long, pytest.mark.compat, pytest.mark.ours]
GOLDEN = Path(__file__).parents[1] / "golden" / "transactions.jsonl.gz"


def test_a_broker_answers_and_writes_what_kafka_did(tmp_path: Path) -> None:
    assert text_of(played_to_kafkapy(tmp_path / "data")) == text_of(played_to_kafka())


def played_to_kafkapy(directory: Path) -> list[dict[str, Any]]:
    with Kafkapy(directory, script.PROPERTIES) as broker:
        play = script.Play(broker.bootstrap, 2)
        play.prepare()
        for part in (
            script.play_bad_requests,
            script.play_nothing_added,
            script.play_both_kinds,
            script.play_orders,
            script.play_lists,
            script.play_held,
            script.craft_all,
        ):
            part(play)
        broker.stop()
        broker.start()
        play.reconnect(broker.bootstrap)
        play.find_coordinator()
        script.play_crafted(play)
        script.play_renewed(play)
        play.client.close()
        unknown = (
            "of __transaction_state-0 with unknown versions (1 of key 0, value 2; 1 of key 1, value 1; 1 of key 1)"
        )
        assert f"Ignored 3 records {unknown}" in Path(f"{directory}.log").read_text()
        return play.scenarios


def played_to_kafka() -> list[dict[str, Any]]:
    """Return what was recorded at transaction.version 2, without the scenarios that are not played again."""
    with gzip.open(GOLDEN, "rt", encoding="utf-8") as lines:
        recorded = map(json.loads, lines)
        return [
            as_answered_here(scenario)
            for scenario in recorded
            if scenario["transaction_version"] == 2
            and scenario["name"] not in script.RECIPES
            and scenario["name"] != "timed out"
        ]
