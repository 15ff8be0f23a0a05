"""`python -m spark_jobs JOB --config file.yaml`: the one way to start a job."""

import importlib
import inspect
import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, get_type_hints

import typer

from spark_jobs.config import AnyConfig, JobConfig, describe, load_config, refuse_unknown
from spark_jobs.errors import JobError
from spark_jobs.schemas import SCHEMAS

JOBS = {
    "feed": "put trades and order-book updates on topics: recorded ones, or a made-up market",
    "bronze": "archive topics as they came, to Parquet",
    "silver": "check and type trades, drop duplicates; bad ones go to a dead-letter topic",
    "gold": "bars of 1 s, 1 min and 1 h, each written once when it is complete",
    "quotes": "trades and order-book updates to a topic of ticks, in milliseconds (real-time mode of Spark 4.2)",
    "live": "the same bars, written again whenever they change",
    "book": "rebuild order books from snapshots and deltas, find their gaps",
    "fills": "join trades with order books by the watermark: effective spread and slippage of each",
    "audit": "prove that bronze's archive holds the topics, each offset once",
    "audit_book": "prove that book's state store holds each symbol's book, by its topic",
    "audit_bars": "prove that topic, tables and Parquet hold each of gold's bars once, to the last digit",
    "audit_trades": "prove that topic, tables and Parquet hold each of silver's trades once, and dead letters the rest",
    "replay": "put an archived range back on a topic, with keys, headers and timestamps",
    "latency": "measure from producer to consumer through quotes, as a table and a histogram",
    "page": "serve a live page: candles as they form, order books, latency, rows and lag",
    "chart": "draw candles with VWAP and volume",
}
"""Each job is the module of its name: `run(config)`, or `run(config, reset_output=...)` if it has an output."""

BACKFILLS = {
    "silver": "make silver's trades and dead letters again, from the topics or from the archive",
    "gold": "make gold's bars again, from the topic or from the archive",
    "book": "make the order books again, from the topics or from the archive",
}
"""Each is run_NAME of the module backfill."""

app = typer.Typer(
    name="python -m spark_jobs",
    help="Market data on Spark: trades on a topic become bars, books and an archive. `JOB --help` lists the "
    "keys of a job.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

backfills = typer.Typer(
    help="Repeat silver, gold or book. `backfill JOB --help` lists the keys.",
    no_args_is_help=True,
)

KEYS: set[str] = set()
"""The keys of all jobs: the environment may hold those of several."""

ConfigFile = Annotated[Path | None, typer.Option("--config", help="YAML file of the job's keys (below)")]
Overrides = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="a key, over the file's")]
Reset = Annotated[
    bool,
    typer.Option("--reset-output", help="first remove checkpoint and output (of topics the records), then start anew"),
]


def config_model(run: Callable[..., object]) -> type[JobConfig]:
    """Return the model of a job's configuration: the type of run's first argument."""
    first = next(iter(inspect.signature(run).parameters))
    model: type[JobConfig] = get_type_hints(run)[first]
    return model


def load(model: type[AnyConfig], config: Path | None, sets: list[str] | None) -> AnyConfig:
    refuse_unknown(os.environ, KEYS)
    return load_config(model, config, sets or (), os.environ)


def add_command(to: typer.Typer, job: str, run: Callable[..., object], summary: str) -> None:
    model = config_model(run)
    KEYS.update(model.model_fields)
    keys = "\n\n".join(
        f"{key} ({kind}, {'required' if default == 'required' else f'default {default}'}): {text}"
        for key, kind, default, text in describe(model)
    )

    def with_output(config: ConfigFile = None, sets: Overrides = None, reset_output: Reset = False) -> None:
        run(load(model, config, sets), reset_output=reset_output)

    def without_output(config: ConfigFile = None, sets: Overrides = None) -> None:
        run(load(model, config, sets))

    command = with_output if "reset_output" in inspect.signature(run).parameters else without_output
    to.command(job.replace("_", "-"), help=f"{summary[0].upper()}{summary[1:]}.", epilog=f"Keys:\n\n{keys}")(command)


@app.command("schemas", help="Print the schemas of all events and rows, in JSON Schema's form.")
def print_schemas() -> None:
    print(json.dumps([schema.json_schema() for schema in SCHEMAS], indent=2))


@app.command("query", help="Ask in SQL (DuckDB) what jobs wrote: Iceberg and Delta tables, Parquet by batches.")
def print_query(
    sql: Annotated[str, typer.Argument(help="for example: select symbol, count(*) from bars group by symbol")],
    folder: Annotated[Path, typer.Option("--in", help="folder of the tables, or of a job's outputs")] = Path(),
    catalog: Annotated[
        list[str] | None, typer.Option("--catalog", metavar="KEY=VALUE", help="of another catalogue of Iceberg")
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="as CSV, all digits")] = False,
) -> None:
    settings = dict(one.partition("=")[::2] for one in catalog or ())
    print(importlib.import_module("spark_jobs.query").run(sql, folder, settings, as_csv=as_csv), end="")


def main() -> int:
    """Run a job; a failure is one line, exit 1 (SPARK_JOBS_TRACE=1: with its traceback)."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # main prints an error in one line
    for job, summary in JOBS.items():
        add_command(app, job, importlib.import_module(f"spark_jobs.{job}").run, summary)
    for job, summary in BACKFILLS.items():
        add_command(backfills, job, getattr(importlib.import_module("spark_jobs.backfill"), f"run_{job}"), summary)
    app.add_typer(backfills, name="backfill")
    try:
        app()
    except JobError as error:
        if os.environ.get("SPARK_JOBS_TRACE"):
            raise
        print(f"spark_jobs: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
