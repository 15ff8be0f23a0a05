"""The metrics of a job are those of its own query: a session tells its listeners of all queries."""

import json
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

from spark_jobs.config import JobConfig
from spark_jobs.metrics import QueryMetrics


def progress(name: str, rows: int) -> SimpleNamespace:
    """Spark's event of a batch, as far as it is read."""
    told = {"name": name, "batchId": 0, "numInputRows": rows, "durationMs": {"triggerExecution": 1500}}
    return SimpleNamespace(progress=SimpleNamespace(json=json.dumps(told)))


def test_batches_of_other_queries_of_the_session_do_not_count() -> None:
    metrics = QueryMetrics(JobConfig(bootstrap_servers="x:1"), "silver")
    for name, rows in (("silver", 3), ("quotes", 100), ("silver", 4)):
        metrics.onQueryProgress(progress(name, rows))
    assert metrics.registry.get_sample_value("spark_job_input_rows_total", {"job": "silver"}) == 7
    assert metrics.registry.get_sample_value("spark_job_batches_total", {"job": "silver"}) == 2
