"""The schemas in JSON Schema's form, against the events that the feed makes."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from spark_jobs.generator import Market, generate
from spark_jobs.schemas import BOOK, DEPTH, TRADE

TYPES = {"string": str, "integer": int, "boolean": bool, "array": list}


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value fits one of the few forms that our schemas have."""
    if "const" in schema:
        return bool(value == schema["const"])
    if type(value) is not TYPES[schema["type"]]:
        return False
    return re.search(schema.get("pattern", ""), value) is not None if isinstance(value, str) else True


def test_events_of_the_feed_fit_their_schemas():
    market = Market(events=300, depth_per_trade=1, malformed=0)
    schemas = {"trade": TRADE.json_schema(), "depth": DEPTH.json_schema()}
    seen = set()
    for event in generate(market):
        schema, fields = schemas[event.kind], json.loads(event.value)
        assert list(fields) == schema["required"] == list(schema["properties"])
        assert all(fits(value, schema["properties"][name]) for name, value in fields.items())
        seen.add(event.kind)
    assert seen == {"trade", "depth"}


def test_what_may_be_null_is_not_required():
    required = BOOK.json_schema()["required"]
    assert {"symbol", "status", "update_id"} <= set(required)
    assert not {"reason", "bid", "microprice", "ask_depth"} & set(required)


def test_all_schemas_are_printed_with_their_versions():
    root = Path(__file__).parents[3]
    command = [sys.executable, "-m", "spark_jobs", "schemas"]
    printed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    assert [one["$id"] for one in json.loads(printed)] == [
        "trade.v1",
        "depth.v1",
        "silver_trade.v1",
        "bar.v1",
        "book.v1",
        "tick.v1",
        "book_second.v1",
        "fill.v1",
    ]
