"""docker/prometheus and docker/grafana: alerts that fire, and files that fit together."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

DOCKER = Path(__file__).parents[3] / "docker"
PROMETHEUS = DOCKER / "prometheus"

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool (Debian: prometheus)")


def promtool(*arguments: str) -> None:
    done = subprocess.run(["promtool", *arguments], cwd=PROMETHEUS, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_the_configuration_and_the_alerts_are_sound() -> None:
    promtool("check", "config", "prometheus.yml")


@needs_promtool
def test_every_alert_fires_for_what_it_is_for() -> None:
    promtool("test", "rules", "alerts_test.yml")


def test_every_alert_has_a_test() -> None:
    groups = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
    alerts = [rule["alert"] for group in groups for rule in group["rules"]]
    tests = yaml.safe_load((PROMETHEUS / "alerts_test.yml").read_text())["tests"]
    tested = [case["alertname"] for test in tests for case in test["alert_rule_test"] if case["exp_alerts"]]
    assert sorted(tested) == sorted(alerts)


def test_the_profile_mounts_what_is_there() -> None:
    services = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
    monitoring = {name: service for name, service in services.items() if "monitoring" in service.get("profiles", ())}
    assert monitoring.keys() == {"prometheus", "grafana"}
    for service in monitoring.values():
        for volume in service["volumes"]:
            assert (DOCKER / volume.split(":")[0]).is_dir()


def test_the_boards_panels_have_ids_and_places_of_their_own() -> None:
    panels = json.loads((DOCKER / "grafana" / "dashboards" / "kafkapy.json").read_text())["panels"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len({panel["id"] for panel in panels}) == len(set(places)) == len(panels)
