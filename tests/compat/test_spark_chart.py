"""A chart of bars in Parquet: one HTML file that needs no network, or a PNG."""

import json
import re
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from PIL import Image, ImageColor

from spark_jobs import chart, picture
from spark_jobs.chart import ChartConfig
from spark_jobs.errors import JobError
from spark_jobs.schemas import BAR

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
MINUTE_MS = 60_000
START_MS = 1_700_000_040_000


@pytest.fixture
def bars(spark, tmp_path) -> str:
    """30 bars of one symbol and 20 of another, written as gold does."""
    rows = []
    for symbol, count in (("BTCUSDT", 30), ("ETHUSDT", 20)):
        for n in range(count):
            price, start_ms = Decimal(100 + n), START_MS + n * MINUTE_MS
            prices = (price, price + 2, price - 1, price + (1 if n % 2 else -1))
            sums = (Decimal(n + 1), price, price + Decimal("0.25"), 5, Decimal(1), Decimal(1), Decimal(0), 1, 5)
            rows.append((symbol, "1m", start_ms, start_ms + MINUTE_MS, *prices, *sums))
    path = str(tmp_path / "bars")
    spark.createDataFrame(rows, BAR.ddl()).write.partitionBy("width").parquet(f"{path}/batch_id=0")
    return path


def test_chart_holds_the_candles_vwap_and_volume_of_the_busiest_symbol(spark, bars, tmp_path) -> None:
    file = tmp_path / "new" / "chart.html"
    span = {"start": "2023-11-14T22:19:00", "most": 10}
    chart.run(ChartConfig(bars=bars, picture=file, **span))
    page = file.read_text()
    assert 'src="' not in page
    (drawn,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    data = json.loads(drawn)
    assert data["step_seconds"] == 60
    assert list(data["symbols"]) == ["BTCUSDT"]
    candles = data["symbols"]["BTCUSDT"]
    assert candles["open"] == [float(100 + n) for n in range(20, 30)]
    assert candles["time"][0] == datetime(2023, 11, 14, 22, 34, tzinfo=UTC).timestamp()
    assert candles["vwap"] == [100 + n + 0.25 for n in range(20, 30)]
    assert candles["volume"] == [float(n + 1) for n in range(20, 30)]


def test_chart_as_png_shows_rising_and_falling_candles_and_the_vwap(spark, bars, tmp_path) -> None:
    file = tmp_path / "chart.png"
    chart.run(ChartConfig(bars=bars, picture=file))
    with Image.open(file) as image:
        assert (image.format, image.size) == ("PNG", (picture.WIDTH, picture.HEIGHT))
        pixels = {colour: count for count, colour in image.convert("RGB").getcolors(1 << 24)}
    for colour in (picture.UP, picture.DOWN, picture.VWAP):
        assert pixels[ImageColor.getrgb(colour)] > 200


def test_chart_without_bars_or_with_a_strange_name_is_an_error(spark, bars, tmp_path) -> None:
    with pytest.raises(JobError, match="holds no bar of DOGEUSDT of width 1m"):
        chart.run(ChartConfig(bars=bars, symbol="DOGEUSDT"))
    with pytest.raises(JobError, match=r"chart\.gif: a picture ends in \.html or \.png"):
        chart.run(ChartConfig(bars=bars, picture=tmp_path / "chart.gif"))
