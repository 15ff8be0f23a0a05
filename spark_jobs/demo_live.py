"""The live part of the demo: silver, live and quotes as streams of one Spark session, while the feed sends at a pace.

Each job runs in a thread of its own, as `python -m spark_jobs JOB` would run it; the page reads what they write and
requests their /metrics. All of them end before the demo continues; what silver has not read then, it reads later from
its checkpoint on.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from spark_jobs import live, quotes, silver
from spark_jobs.connector import require_spark
from spark_jobs.errors import JobError
from spark_jobs.page import Page
from spark_jobs.session import stop_after_batch

START_S: Final = 180.0
STOP_S: Final = 60.0
CATCH_UP_S: Final = 60.0
POLL_S: Final = 0.1
MASTER: Final = "local[8]"
"""Cores: one for each partition that quotes reads, and some for the other jobs' batches."""
READ: Final = {"silver": "trades", "live": "silver_trades"}
JOBS: Final = ("silver", "live", "quotes")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def silver_config(session: dict[str, Any], directory: Path, **more: Any) -> silver.SilverConfig:
    """Return silver's configuration: the demo finishes with it what the stream began."""
    given = {**session, "topics": ["trades"], "checkpoint": f"{directory}/silver", "watermark": "1 day", **more}
    return silver.SilverConfig(**given)


class LiveJobs:
    """The jobs' threads, and the first error of one of them."""

    def __init__(self, session: dict[str, Any], directory: Path, ports: dict[str, int]) -> None:
        self.failure: JobError | None = None
        given = {name: {**session, "metrics_port": ports[name]} for name in JOBS}
        real_time = "1 minute" if _has_real_time() else None
        self._threads = [
            self._thread("silver", lambda: silver.run(silver_config(given["silver"], directory, trigger="1 second"))),
            self._thread("live", lambda: live.run(_live_config(given["live"], directory))),
            self._thread("quotes", lambda: quotes.run(_quotes_config(given["quotes"], directory, real_time))),
        ]

    def _thread(self, name: str, run: Callable[[], object]) -> threading.Thread:
        def guarded() -> None:
            try:
                run()
            except JobError as error:
                self.failure = self.failure or error

        return threading.Thread(target=guarded, name=name)

    def start(self, spark: SparkSession) -> None:
        """Start the jobs; return once the queries run. Raises JobError."""
        for thread in self._threads:
            thread.start()
        if not self.wait_until(lambda: {query.name for query in spark.streams.active} >= set(JOBS), START_S):
            raise JobError(f"Spark's queries did not start within {START_S:.0f} s")

    def wait_until(self, is_done: Callable[[], bool], timeout_s: float) -> bool:
        """Return whether something is done within the timeout. Raises JobError if a job fails before."""
        end_s = time.monotonic() + timeout_s
        while not is_done():
            self.check()
            if time.monotonic() > end_s:
                return False
            time.sleep(POLL_S)
        return True

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def stop(self, spark: SparkSession) -> None:
        """Stop quotes at once, the other queries after their batch; wait for the threads."""
        for query in sorted(spark.streams.active, key=lambda query: query.name == "quotes"):
            if query.name == "quotes":
                spark.sparkContext.setLogLevel("OFF")  # its tasks log stack traces, also later; real errors are raised
                query.stop()
            else:
                stop_after_batch(query, STOP_S)
        for thread in self._threads:
            thread.join()


def _has_real_time() -> bool:
    try:
        require_spark("real-time mode", quotes.REAL_TIME_SINCE)
    except JobError:
        return False
    return True


def _live_config(session: dict[str, Any], directory: Path) -> live.LiveConfig:
    return live.LiveConfig(**session, topics=["silver_trades"], checkpoint=f"{directory}/live", trigger="1 second")


def _quotes_config(session: dict[str, Any], directory: Path, real_time: str | None) -> quotes.QuotesConfig:
    return quotes.QuotesConfig(
        **session,
        topics=["trades", "depth"],
        dead_letter_topic="dead_ticks",
        checkpoint=f"{directory}/quotes",
        trigger="1 second",
        real_time=real_time,
    )


@contextmanager
def streaming(
    spark: SparkSession, session: dict[str, Any], directory: Path, ports: dict[str, int]
) -> Iterator[LiveJobs]:
    """Run the jobs for as long as this is held. Raises JobError if one of them failed."""
    jobs = LiveJobs(session, directory, ports)
    try:
        jobs.start(spark)
        yield jobs
    finally:
        jobs.stop(spark)
    jobs.check()


def wait_until_moving(page: Page, jobs: LiveJobs) -> None:
    """Wait until the page has its first tick and its first bar, at most START_S."""
    state = page.source.state
    jobs.wait_until(lambda: bool(state.ticks and state.bars), START_S)


def wait_until_read(page: Page, jobs: LiveJobs) -> None:
    """Wait, at most CATCH_UP_S, until silver and live have read all their records: the page shows the last bars."""

    def has_read(job: str, topic: str) -> bool:
        facts = page.source.facts
        return facts.jobs.get(job, {}).get("rows", 0) >= facts.records.get(topic, 1)

    jobs.wait_until(lambda: all(has_read(job, topic) for job, topic in READ.items()), CATCH_UP_S)
