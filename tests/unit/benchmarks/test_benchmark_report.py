"""The benchmark's report: which way a ratio goes, what is held against which goal, what is not run yet."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.chart import html, svg
from benchmarks.report import held_against_goals, markdown, rows
from benchmarks.run import WORKLOADS, chosen, run_or_say_why
from benchmarks.servers import Server
from benchmarks.workload import Workload

ABOUT = {
    "processor": "a processor",
    "cores": 2,
    "memory_gib": 8,
    "system": "Linux",
    "python": "3.11",
}
RESULTS = {
    "produce <a>": {
        "family": "produce",
        "scale": 0.5,
        "figures": {
            "kafkapy": [{"records_per_s": 300.0, "p99_ms": 4.0}, {"records_per_s": 200.0, "p99_ms": 2.0}],
            "Apache Kafka": [{"records_per_s": 100.0, "p99_ms": 2.0}, {"records_per_s": 200.0, "p99_ms": 2.0}],
        },
    },
    "over TLS": {"family": "tls", "scale": 0.5, "left_out": "not yet: no TLS"},
}


def test_a_ratio_above_one_is_in_our_favour_and_compares_within_a_round():
    found = {row.figure: (row.ours, row.theirs, row.ratio, row.lowest, row.highest) for row in rows(RESULTS)}
    assert found == {"records_per_s": (250.0, 150.0, 2.0, 1.0, 3.0), "p99_ms": (3.0, 2.0, 0.75, 0.5, 1.0)}


def test_a_goal_is_held_against_the_figures_of_its_families():
    (held,) = held_against_goals(RESULTS)
    row, goal, found, is_met = held
    assert (row.figure, goal, found, is_met) == ("records_per_s", "ratio of at least 1.25", "2.00", True)


def test_each_row_says_how_much_was_run():
    (row,) = [line for line in markdown(RESULTS, ABOUT).splitlines() if "| p99_ms | 3 |" in line]
    assert row.endswith("| 0.75 | 0.50 to 1.00 | 2 x 0.5 |")


def test_what_is_not_run_says_so_in_every_report():
    assert "* over TLS: not yet: no TLS." in markdown(RESULTS, ABOUT)
    assert "over TLS: not yet: no TLS" in html(RESULTS, ABOUT)


def test_the_chart_escapes_names():
    assert "produce &lt;a&gt;" in svg(RESULTS)
    assert ElementTree.fromstring(svg(RESULTS)).tag.endswith("svg")


def test_loads_are_chosen_by_family_or_part_of_the_name():
    assert {load.family for load in chosen("latency,growth", is_quick=True)} == {"latency", "growth"}
    assert [load.name for load in chosen("kill -9", is_quick=False)] == ["recovery after kill -9"]
    with pytest.raises(SystemExit, match="families: rest"):
        chosen("nothing", is_quick=False)


def test_no_two_loads_share_a_name():
    assert len({load.name for load in WORKLOADS}) == len(WORKLOADS)


def test_a_load_that_fails_costs_no_other_its_result():
    def fail(server: Server, topic: str, scale: float) -> dict[str, float]:
        raise AssertionError(f"nothing came of {topic}")

    pair = [Server("kafkapy", Path("nowhere")), Server("Apache Kafka", Path("nowhere"))]
    result = run_or_say_why(Workload("a load", fail), pair, 1, 1.0, "")
    assert result == {"left_out": "failed: AssertionError nothing came of a-load-0"}
