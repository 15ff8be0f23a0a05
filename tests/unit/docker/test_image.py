"""What the image installs."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def installed_by_image() -> set[str]:
    """Return the names of the packages that the image's extras add."""
    (extras,) = re.findall(r'"\.\[([a-z,]+)\]"', (ROOT / "docker" / "Dockerfile").read_text())
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return {re.split("[<>=]", each)[0].lower() for extra in extras.split(",") for each in known[extra]}


@pytest.mark.parametrize("package", ["confluent-kafka", "pyyaml", "pyjwt"])
def test_the_image_has_what_a_variable_can_ask_for(package: str) -> None:
    """KAFKA_KAFKAPY_METRICS_RULES needs PyYAML, KAFKA_SASL_ENABLED_MECHANISMS=OAUTHBEARER PyJWT."""
    assert package in installed_by_image()
