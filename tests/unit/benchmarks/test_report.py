"""The benchmark's report: which way a ratio goes, what is held against which goal, what is not run yet."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.chart import html, svg
from benchmarks.compiled_goals import COMPILED_GOALS
from benchmarks.growth import largest_rise
from benchmarks.report import GOALS, Goal, goals_in_short, left_out, markdown, rows, verdicts
from benchmarks.run import WORKLOADS, Plan, by_turns, chosen, run_or_report_why
from benchmarks.workload import Workload
from harness.servers import Server

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


def test_a_goal_is_held_against_the_figures_of_its_families_and_says_what_was_not_run():
    assert [verdict.cells()[1:] for verdict in verdicts(RESULTS)] == [
        ("produce <a>", "ratio of at least 1.25", "2", "met"),
        ("over TLS", "ratio of at least 2", "", "not yet: no TLS"),
    ]


def test_a_goal_is_missed_by_little_and_where_a_server_has_no_figure():
    for ours, is_met in ((124.9, False), (125.0, True), (0.0, False)):
        found = {"kafkapy": [{"records_per_s": ours}], "Apache Kafka": [{"records_per_s": 100.0}]}
        (verdict,) = verdicts({"a": {"family": "produce", "scale": 1, "figures": found}})
        assert verdict.is_met is is_met
    found = {"kafkapy": [{"ready_s": 0.301}], "Apache Kafka": [{"ready_s": 3.0}]}
    (verdict,) = verdicts({"a": {"family": "rest", "scale": 1, "figures": found}})
    assert verdict.cells()[2:] == ("at most 0.3", "0.301", "missed")


def test_the_short_table_names_every_goal_also_those_that_nothing_was_run_for():
    said = {name: (verdict, span) for name, _, verdict, span in goals_in_short(RESULTS)}
    assert len(said) == len(GOALS)
    assert said["producing: 1.25 times the throughput"] == ("met", "2")
    assert said["ready in 0.3 s"] == ("not measured", "")


def test_every_goal_is_of_a_family_that_has_loads():
    assert {family for goal in GOALS for family in goal.families} <= {load.family for load in WORKLOADS}


def test_a_rise_of_a_mib_cost_is_seen_wherever_it_is():
    assert largest_rise([90.0, 10.0, 5.0]) == 1.0
    assert largest_rise([90.0, 10.0, 20.0, 15.0]) == 2.0


def test_each_row_shows_how_much_was_run():
    assert "| produce <a> (2 x 0.5) | records | 250 | 150 | 2.00 (1.00 to 3.00) |" in markdown(RESULTS, ABOUT)
    assert "<td>p99_ms<td>3<td>2<td>0.75<td>0.50 to 1.00<td>2 x 0.5" in html(RESULTS, ABOUT)


def test_what_is_not_run_is_marked_in_every_report():
    assert "* over TLS: not yet: no TLS." in markdown(RESULTS, ABOUT)
    assert "over TLS: not yet: no TLS" in html(RESULTS, ABOUT)


def test_the_chart_escapes_names():
    assert "produce &lt;a&gt;" in svg(RESULTS)
    assert ElementTree.fromstring(svg(RESULTS)).tag.endswith("svg")


def test_loads_are_chosen_by_family_or_part_of_the_name():
    assert {load.family for load in chosen("latency,growth", is_quick=True)} == {"latency", "growth"}
    assert [load.name for load in chosen("kill -9", is_quick=False)] == ["recovery after kill -9"]
    assert [load.name for load in chosen("queue, first record", is_quick=False)] == ["queue, first record"]
    with pytest.raises(SystemExit, match="families: rest"):
        chosen("nothing", is_quick=False)


def test_a_quick_run_begins_with_a_load_of_every_family():
    quick = chosen(None, is_quick=True)
    families = {load.family for load in WORKLOADS}
    assert {load.family for load in quick[: len(families)]} == families
    assert by_turns(quick) == quick


def test_no_two_loads_share_a_name():
    assert len({load.name for load in WORKLOADS}) == len(WORKLOADS)


def test_a_load_that_fails_costs_no_other_its_result():
    def fail(server: Server, topic: str, scale: float) -> dict[str, float]:
        raise AssertionError(f"nothing came of {topic}")

    pair = [Server("kafkapy", Path("nowhere")), Server("Apache Kafka", Path("nowhere"))]
    result = run_or_report_why(Workload("a load", fail), pair, Plan(rounds=1, scale=1.0), "")
    assert result == {"left_out": "failed: AssertionError nothing came of a-load-0"}


def test_a_load_that_fails_on_the_other_server_alone_has_our_figures():
    runs: list[str] = []

    def run_or_time_out(server: Server, topic: str, scale: float) -> dict[str, float]:
        runs.append(server.name)
        if server.name == "Apache Kafka":
            raise TimeoutError("no record came")
        return {"records_per_s": 10.0, "broker_cpu_s_per_gb": 1.0}

    pair = [Server("kafkapy", Path("nowhere")), Server("Apache Kafka", Path("nowhere"))]
    load = Workload("a load", run_or_time_out, warms_up=False, family="queues")
    result = run_or_report_why(load, pair, Plan(rounds=2, scale=1.0), "")
    assert runs == ["kafkapy", "Apache Kafka", "kafkapy"], "what has timed out is not waited for again"
    results = {"a load": {"family": "queues", "scale": 1.0, **result}}
    assert [(row.figure, row.ours) for row in rows(results)] == [("records_per_s", 10.0), ("broker_cpu_s_per_gb", 1.0)]
    why = "Apache Kafka not measured: TimeoutError no record came"
    assert left_out(results) == {"a load": why}
    beside = Goal("as many", ("queues",), "records_per_s", ratio_at_least=1)
    alone = Goal("some", ("queues",), "records_per_s", ours_at_least=5)
    assert [(each.is_met, each.cells()[-1]) for each in verdicts(results, [beside, alone])] == [
        (False, why),
        (True, "met"),
    ]


def test_after_a_load_that_fails_the_servers_run_again():
    class Stopped(Server):
        revived = 0

        def revive(self) -> bool:
            self.revived += 1
            raise RuntimeError("it does not start")

    def fail(server: Server, topic: str, scale: float) -> dict[str, float]:
        raise AssertionError("the node did not come back")

    pair = [Stopped("kafkapy", Path("nowhere")), Stopped("Apache Kafka", Path("nowhere"))]
    result = run_or_report_why(Workload("a load", fail), pair, Plan(rounds=1, scale=1.0), "")
    assert result == {"left_out": "failed: AssertionError the node did not come back"}
    assert [server.revived for server in pair] == [1, 1]


def test_what_is_held_against_an_absolute_goal_needs_no_other_server():
    found = {"kafkapy": [{"longest_turn_ms": 40.0}, {"longest_turn_ms": 70.0}]}
    results = {"a controller": {"family": "nodes", "scale": 1, "figures": found}}
    (verdict,) = verdicts(results)
    assert verdict.cells()[2:] == ("at most 50", "55", "missed")
    assert "| a controller (2 x 1) | longest_turn_ms | 55 | - | - |" in markdown(results, ABOUT)


def test_a_compiled_side_has_a_table_of_its_own():
    figures = {
        "kafkapy": [{"requests_per_s": 100.0}],
        "kafkapy compiled": [{"requests_per_s": 300.0}],
        "Apache Kafka": [{"requests_per_s": 200.0}],
    }
    results = {"small": {"family": "requests", "scale": 1, "figures": figures}}
    assert [row.ratio for row in rows(results, "kafkapy compiled")] == [1.5]
    assert "| small (1 x 1) | 300 requests | 1.50 | 0.50 |  |  |  |" in markdown(results, ABOUT).splitlines()
    assert "compiled" not in markdown(RESULTS, ABOUT)


def test_the_compiled_side_has_goals_of_its_own():
    figures = {
        "kafkapy": [{"broker_cpu_us_per_commit": 10.0}],
        "kafkapy compiled": [{"broker_cpu_us_per_commit": 5.0}],
        "Apache Kafka": [{"broker_cpu_us_per_commit": 10.0}],
    }
    results = {"commits": {"family": "groups", "scale": 1, "figures": figures}}
    (verdict,) = verdicts(results, COMPILED_GOALS, "kafkapy compiled")
    assert verdict.cells() == ("offset commits: CPU", "commits", "ratio of at least 2", "2", "met")
    assert "| offset commits: CPU | ratio of at least 2 | met | 2 |" in markdown(results, ABOUT).splitlines()


def test_each_goal_of_the_compiled_side_is_of_loads_that_exist():
    for goal in COMPILED_GOALS:
        assert any(each.family in goal.families and goal.of_loads in each.name for each in WORKLOADS), goal
