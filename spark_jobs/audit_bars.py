"""audit-bars: proves that topic, Iceberg, Delta and Parquet hold each of gold's bars once, to the last digit.

audit_rows.py has the method, and what is counted for each place. A bar must be there once the watermark of the last
committed batch has passed its end.
"""

from dataclasses import asdict

from confluent_kafka import Message

from spark_jobs import oracle
from spark_jobs.audit_rows import History, Kind, compare, conclude, on_this_machine, places_of, records_of
from spark_jobs.config import duration_ms
from spark_jobs.events import Trade
from spark_jobs.gold import GoldConfig
from spark_jobs.oracle import Bar
from spark_jobs.schemas import BAR

BARS = Kind(BAR, "bars", ("symbol", "width", "start_ms"), "start_ms")


class AuditBarsConfig(GoldConfig):
    """Gold's own configuration; kafka's options by librdkafka's names stand under producer."""


def run(config: AuditBarsConfig) -> None:
    """Audit all places that the configuration names, print a table, and raise JobError if something is wrong."""
    rows = [asdict(bar) for bar in expected_bars(config)]
    expected = {BARS.key_of(row): BARS.values_of(row) for row in rows}
    conclude(config, [compare(place, expected, found) for place, found in places_of(config, BARS)])


def expected_bars(config: AuditBarsConfig) -> list[Bar]:
    """Return the bars that gold must have written by its last committed batch."""
    max_ahead_ms = duration_ms(config.max_ahead)

    def parsed(message: Message) -> Trade | str:
        return oracle.parse(message.value(), message.timestamp()[1], max_ahead_ms)

    history = History.of(on_this_machine(config.checkpoint))
    cut = history.cut(records_of(config, history), parsed)
    trades = [[trade for trade in batch if isinstance(trade, Trade)] for batch in cut]
    counted, _, _ = oracle.in_time(trades, duration_ms(config.watermark))
    return [bar for bar in oracle.bars(counted) if bar.end_ms <= history.watermark_ms]
