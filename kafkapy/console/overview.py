"""The first page: what needs attention, throughput and six charts, brokers and their disks."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kafkapy.console import access, attention, cluster, other_groups, transactions
from kafkapy.console.brokers import Brokers, ClusterError, NotFound
from kafkapy.console.history import LAG, RECORDS, UNDER_REPLICATED
from kafkapy.console.render import Renderer
from kafkapy.console.samples import PRODUCE_P99, Points, rate
from kafkapy.console.state import Console
from kafkapy.dataclass import dataclass

MAX_LAGS: Final = 5
QUORUM_S: Final = 0.5
"""Only the badge of its leader depends on the quorum: the page comes without it."""


@dataclass(frozen=True, slots=True)
class Chart:
    """`labels`: one for each series; `needs_metrics`: only /metrics have it."""

    name: str
    title: str
    unit: str
    labels: tuple[str, ...]
    needs_metrics: bool = True


CHARTS: Final = (
    Chart("bytes", "Bytes of producers and consumers", "B/s", ("in", "out")),
    Chart("records", "Records in", "/s", ("records",), needs_metrics=False),
    Chart("requests", "Requests", "/s", ("requests",)),
    Chart("p99", "Produce, 99th percentile of the slowest broker", "ms", ("p99",)),
    Chart("lag", "Lag of all groups", "records", ("lag",), needs_metrics=False),
    Chart("under-replicated", "Under-replicated partitions", "", ("partitions",), needs_metrics=False),
)
METRICS: Final[Mapping[str, tuple[str, ...]]] = {
    "bytes": ("brokertopicmetrics_bytesin_total", "brokertopicmetrics_bytesout_total"),
    "requests": ("requestmetrics_requests_total",),
}
"""Ends of the names of the metrics in a chart: as Strimzi's rules have them, with kafka_ and their group in front."""


class Overview:
    """Handlers run in threads: they block."""

    def __init__(self, console: Console, renderer: Renderer) -> None:
        self._console = console
        self._renderer = renderer

    def routes(self) -> list[Route]:
        return [
            Route("/", self.page, methods=["GET"]),
            Route("/overview/chart", self.chart, methods=["GET"]),
        ]

    def page(self, request: Request) -> Response:
        with ThreadPoolExecutor(1) as beside:
            # it takes until an election ends, while the page waits for what else is silent
            quorum = beside.submit(access.section, _quorum, self._console.brokers)
            return self._page(request, quorum)

    def _page(self, request: Request, quorum: Future[access.Section]) -> Response:
        brokers = self._console.brokers
        nodes = brokers.nodes()
        topics = self._console.topic_lists.current()
        log_dirs = cluster.log_dirs(brokers, nodes)
        silent = {each.node_id for each in log_dirs if each.is_silent}
        at_risk = sum(topics.led.get(node_id, 0) for node_id in silent)
        lags = {group: points for group, points in self._console.lags.all().items() if points}
        # What only some users may ask (to describe the cluster, to list groups) is a section: without the right to it,
        # the page shows the refusal there, and everything else.
        return self._renderer.page(
            request,
            "overview.html",
            concerns=[  # the most urgent first
                *attention.of_topics(topics, cluster.min_insync_replicas(brokers, list(topics.in_sync))),
                *attention.of_brokers(silent, at_risk),
                *attention.of_lags(lags),
                *attention.of_transactions(_open_transactions(self._console)),
                *attention.of_disks(log_dirs),
            ],
            charts=[each for each in CHARTS if self._console.metrics.urls or not each.needs_metrics],
            has_metrics=bool(self._console.metrics.urls),
            metrics_problems=self._console.metrics.problems,
            lags=sorted(((group, int(points[-1][1])) for group, points in lags.items()), key=lambda each: -each[1])[
                :MAX_LAGS
            ],
            silent=silent,
            at_risk=at_risk,
            nodes=nodes,
            led=topics.led,
            cluster_id=brokers.cluster_id,
            topic_count=len(topics.names) - len(topics.internal),
            partition_count=topics.partition_count,
            under_replicated=topics.under_replicated,
            offline=topics.offline,
            log_dirs=log_dirs,
            quorum=quorum.result(),
            features=access.section(cluster.features, brokers),
            group_count=access.section(
                lambda _: [len(other_groups.group_list(brokers, self._console.clients)[0])], brokers
            ),
        )

    def chart(self, request: Request) -> Response:
        """Return the points of one chart: [seconds, value of each series], null where a series has none."""
        chart = request.query_params.get("name", "")
        if all(chart != each.name for each in CHARTS):
            raise NotFound("There is no such chart.")
        return JSONResponse({"points": joined(self._series(chart))})

    def _series(self, chart: str) -> list[Points]:
        history = self._console.history
        match chart:
            case "records":
                return [rate(history.of(RECORDS))]
            case "lag":
                return [history.of(LAG)]
            case "under-replicated":
                return [history.of(UNDER_REPLICATED)]
            case "p99":
                return [self._console.metrics.of(PRODUCE_P99)]
            case _:
                return [self._of_metric(end) for end in METRICS[chart]]

    def _of_metric(self, end: str) -> Points:
        name = next((each for each in self._console.metrics.names() if each.endswith(end)), None)
        return [] if name is None else self._console.metrics.of(name)


def joined(series: Sequence[Points]) -> list[list[float | None]]:
    """Return rows of a time and the value of each series then, None where it has none."""
    by_time = [dict(points) for points in series]
    times = sorted({at_s for points in by_time for at_s in points})
    return [[at_s, *(points.get(at_s) for points in by_time)] for at_s in times]


def _quorum(brokers: Brokers) -> list[cluster.Quorum]:
    return [cluster.quorum(brokers, QUORUM_S)]


def _open_transactions(console: Console) -> list[dict[str, Any]]:
    """Return the transactions that are open for long; none if the cluster does not list them by time (before 3.8)."""
    try:
        return transactions.transaction_list(console.brokers, ["Ongoing"], attention.OPEN_MS)[0]
    except ClusterError:
        return []
