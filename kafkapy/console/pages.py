"""The pages: what they read, and which template shows it. All of them are GET, and change nothing."""

import time
from collections.abc import Callable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kafkapy.config import rules
from kafkapy.console import (
    access,
    cluster,
    dead_letters,
    group_list,
    groups,
    other_groups,
    queries,
    share_groups,
    streams_groups,
    topics,
    transactions,
)
from kafkapy.console.admin_changes import QUOTAS
from kafkapy.console.brokers import BadRequest, Brokers, ClusterError, NotFound
from kafkapy.console.fields import number
from kafkapy.console.groups import Group
from kafkapy.console.queries import group_name, query_of, topic_name, transactional_id
from kafkapy.console.render import Renderer
from kafkapy.console.search import MAX_RECORD_CHARACTERS, Query, Search
from kafkapy.console.state import Console
from kafkapy.console.tables import order_of, page_number
from kafkapy.decoders.formats import BY_SCHEMA, FORMATS
from kafkapy.types import INT32_MAX, INT64_MAX

MAX_GROUPS_OF_TOPIC: Final = 100
"""Each row costs the group's committed offsets."""
CHOICES: Final = {
    "permissions": tuple(access.PERMISSIONS.values()),
    "operations": tuple(access.OPERATIONS.values()),
    "resource_types": tuple(access.RESOURCE_TYPES.values()),
    "patterns": tuple(access.PATTERN_TYPES.values()),
    "mechanisms": tuple(access.MECHANISMS.values()),
    "quotas": QUOTAS,
}
RECORD_STEPS: Final = 40
"""Ten seconds for one record."""


class Pages:
    """Handlers run in threads: they block."""

    def __init__(self, console: Console, renderer: Renderer) -> None:
        self._console = console
        self._renderer = renderer

    def routes(self) -> list[Route]:
        pages: dict[str, Callable[[Request], Response]] = {
            "/topics": self.topics,
            "/topic": self.topic,
            "/topic/configs": self.topic_configs,
            "/topic/groups": self.topic_groups,
            "/topic/producers": self.topic_producers,
            "/topic/access": self.topic_access,
            "/topic/messages": self.messages,
            "/topic/tail": self.tail,
            "/topic/record": self.record,
            "/topic/letters": self.letters,
            "/groups": self.groups,
            "/group": self.group,
            "/group/lag": self.group_lag,
            "/group/reset": self.group_reset,
            "/brokers": self.brokers,
            "/broker": self.broker,
            "/transactions": self.transactions,
            "/transaction": self.transaction,
            "/access": self.access,
            "/clients": self.client_list,
            "/client": self.client,
            "/charts": self.charts,
            "/charts/series": self.series,
        }
        return [Route(path, page, methods=["GET"]) for path, page in pages.items()]

    # -- topics -----------------------------------------------------------------------------------------------------

    def topics(self, request: Request) -> Response:
        requested = request.query_params
        search, with_internal = requested.get("q", "")[:249], requested.get("internal") == "1"
        page = topics.topic_page(
            self._console.brokers,
            self._console.topic_lists.current(),
            search=search,
            with_internal=with_internal,
            number=page_number(requested),
            order=order_of(requested, topics.KEYS),
            lags=self._console.lags.topics(),
        )
        return self._page(request, "topics.html", page=page, search=search, with_internal=with_internal)

    def topic(self, request: Request) -> Response:
        topic = self._topic(request)
        rows = topics.partitions(self._console.brokers, topic)
        return self._page(
            request,
            "topic.html",
            topic=topic,
            tab="partitions",
            partitions=rows[: topics.MAX_SHOWN_PARTITIONS],
            partition_count=len(rows),
            record_count=sum(each.record_count or 0 for each in rows),
            size_bytes=sum(each.size_bytes or 0 for each in rows),
        )

    def topic_configs(self, request: Request) -> Response:
        topic = self._topic(request)
        configs = cluster.configs(self._console.brokers, rules.TOPIC, topic.name)
        return self._page(request, "topic_configs.html", topic=topic, tab="configs", configs=configs)

    def topic_groups(self, request: Request) -> Response:
        topic = self._topic(request)
        brokers, clients = self._console.brokers, self._console.clients
        found, _ = other_groups.group_list(brokers, clients)
        shown = found[:MAX_GROUPS_OF_TOPIC]
        sharing = [each.name for each in shown if each.type == groups.SHARE]
        rows = groups.groups_of_topic(clients, topic.name, [each.name for each in shown if each.type != groups.SHARE])
        rows += other_groups.share_groups_of_topic(brokers, topic.name, sharing)
        is_cut = len(found) > MAX_GROUPS_OF_TOPIC
        return self._page(
            request, "topic_groups.html", topic=topic, tab="groups", rows=rows, is_cut=is_cut, most=MAX_GROUPS_OF_TOPIC
        )

    def topic_producers(self, request: Request) -> Response:
        topic = self._topic(request)
        partition = number(request.query_params, "partition", 0, 0, INT32_MAX)
        topics.check_any_partition(topic, [partition])
        rows = transactions.producers(self._console.brokers, topic.name, partition)
        return self._page(
            request, "topic_producers.html", topic=topic, tab="producers", partition=partition, rows=rows[:1000]
        )

    def topic_access(self, request: Request) -> Response:
        topic = self._topic(request)
        acls = access.section(lambda brokers: access.acls(brokers, topic.name), self._console.brokers)
        return self._page(request, "topic_access.html", topic=topic, tab="access", acls=acls)

    def messages(self, request: Request) -> Response:
        return self._searching(request, "messages.html", "messages")

    def tail(self, request: Request) -> Response:
        return self._searching(request, "tail.html", "tail")

    def _searching(self, request: Request, template: str, tab: str) -> Response:
        """Return the form; the page's script requests the stream. Errors of fields are shown beside the form."""
        topic = self._topic(request)
        problem = None
        try:
            query_of(request.query_params)
        except ClusterError as error:
            problem = str(error)
        return self._page(
            request,
            template,
            topic=topic,
            tab=tab,
            fields=request.query_params,
            problem=problem,
            formats=[each for each in FORMATS if each not in BY_SCHEMA or self._console.settings.registry is not None],
            query_string=request.url.query,
            has_more=any(
                request.query_params.get(name, without) != without for name, without in queries.MORE_FIELDS.items()
            ),
        )

    def record(self, request: Request) -> Response:
        """One record, with far more of it than lists show."""
        requested = request.query_params
        topic = self._topic(request)
        query = Query(
            topic=topic.name,
            partitions=(number(requested, "partition", 0, 0, INT32_MAX),),
            begin="offset",
            value=number(requested, "offset", 0, 0, INT64_MAX),
            limit=1,
            key_format=requested.get("key_format") or "auto",
            value_format=requested.get("value_format") or "auto",
            isolation="read_uncommitted",
            has_marks=False,
            max_characters=MAX_RECORD_CHARACTERS,
        )
        search = Search(query, self._console.clients, self._console.brokers, self._console.settings)
        try:
            row = _first(search)
        finally:
            search.close()
        if row is None or row.offset != query.value:
            raise NotFound(f"There is no record at offset {query.value} of {topic.name}-{query.partitions[0]}.")
        return self._page(request, "record.html", topic=topic, tab="messages", row=row)

    def letters(self, request: Request) -> Response:
        """The dead letters of share groups in a topic."""
        topic, choice = self._topic(request), dead_letters.choice_of(request.query_params)
        page = dead_letters.letter_page(self._console.clients, topic.name, choice)
        group, source = choice.group or "", choice.source_topic or ""
        return self._page(request, "letters.html", topic=topic, tab="letters", page=page, group=group, source=source)

    def _topic(self, request: Request) -> Any:
        return self._console.brokers.topic(topic_name(request.query_params))

    # -- groups -----------------------------------------------------------------------------------------------------

    def groups(self, request: Request) -> Response:
        search = request.query_params.get("q", "")[:249]
        brokers, clients = self._console.brokers, self._console.clients
        found, errors = other_groups.group_list(brokers, clients)
        order, page = order_of(request.query_params, group_list.KEYS), page_number(request.query_params)
        shown = group_list.group_page(brokers, clients, found, search=search, order=order, number=page)
        return self._page(request, "groups.html", page=shown, errors=errors, search=search)

    def group(self, request: Request) -> Response:
        group = self._group(request)
        if group.lag is not None:
            self._console.lags.record(group.name, group.lag, time.time())
        rebalances, why_none = groups.rebalances(self._console.clients, group.name)
        return self._page(
            request,
            "group.html",
            group=group,
            rebalances=rebalances,
            why_no_rebalances=why_none,
            application=streams_groups.application(self._console.clients, group) if group.is_streams else None,
            in_flight=share_groups.in_flight(self._console.clients, group) if group.is_share else None,
            held_by=share_groups.held_by,
            fetched_by=share_groups.fetched_by,
            letter_topic=dead_letters.topic_of_group(self._console.brokers, group.name) if group.is_share else "",
        )

    def group_lag(self, request: Request) -> Response:
        """The lag of the last hour."""
        points = self._console.lags.of(request.query_params.get("name", ""))
        return JSONResponse({"lag": points})

    def group_reset(self, request: Request) -> Response:
        requested = request.query_params
        group = self._group(request)
        if not group.can_be_reset:
            raise BadRequest("kafka-streams-groups.sh resets the offsets of such a group.")
        topic, to = requested.get("topic", ""), requested.get("to", "")
        plan = None
        if topic and to:
            plan = groups.plan_reset(share_groups.offsets_of(self._console.clients, group.name), topic, to)
        return self._page(request, "group_reset.html", group=group, topic=topic, to=to, plan=plan)

    def _group(self, request: Request) -> Group:
        name = group_name(request.query_params)
        self._console.brokers.nodes()  # fails at once where no broker answers
        return other_groups.any_group(self._console.brokers, self._console.clients, name)

    # -- brokers ----------------------------------------------------------------------------------------------------

    def brokers(self, request: Request) -> Response:
        brokers = self._console.brokers
        nodes = brokers.nodes()
        log_dirs = cluster.log_dirs(brokers, nodes)
        return self._page(
            request,
            "brokers.html",
            nodes=nodes,
            led=self._console.topic_lists.current().led,
            silent={each.node_id for each in log_dirs if each.is_silent},
            controller_id=brokers.controller_id,
            log_dirs=log_dirs,
            quorum=access.section(lambda requested: [cluster.quorum(requested)], brokers),
            features=access.section(cluster.features, brokers),
            now_ms=int(time.time() * 1000),
        )

    def broker(self, request: Request) -> Response:
        node_id = number(request.query_params, "id", -1, 0, INT32_MAX)
        node = next((each for each in self._console.brokers.nodes() if each.node_id == node_id), None)
        if node is None:
            raise NotFound(f"Broker {node_id} is not there.")
        configs = cluster.configs(self._console.brokers, rules.BROKER, str(node_id))
        return self._page(request, "broker.html", node=node, configs=configs)

    # -- transactions, access ---------------------------------------------------------------------------------------

    def transactions(self, request: Request) -> Response:
        rows, failures = transactions.transaction_list(self._console.brokers, [])
        shown = rows[: transactions.MAX_TRANSACTIONS]
        return self._page(request, "transactions.html", rows=shown, match_count=len(rows), failures=failures)

    def transaction(self, request: Request) -> Response:
        requested = transactional_id(request.query_params)
        coordinator, state = transactions.transaction(self._console.brokers, requested)
        return self._page(request, "transaction.html", id=requested, coordinator=coordinator, state=state)

    def access(self, request: Request) -> Response:
        brokers: Brokers = self._console.brokers
        brokers.nodes()
        return self._page(
            request,
            "access.html",
            acls=access.section(access.acls, brokers),
            quotas=access.section(access.quotas, brokers),
            users=access.section(access.scram_users, brokers),
            choices=CHOICES,
        )

    # -- clients' own metrics --------------------------------------------------------------------------------------

    def client_list(self, request: Request) -> Response:
        metrics = self._console.metrics
        clients = sorted(metrics.clients.values(), key=lambda each: (each.name, each.instance_id))
        return self._page(request, "clients.html", urls=metrics.urls, problems=metrics.problems, clients=clients)

    def client(self, request: Request) -> Response:
        """The metrics of one client only."""
        client = self._console.metrics.clients.get(request.query_params.get("id", ""))
        if client is None:
            raise NotFound("There is no such client, or it has pushed no metrics.")
        search = request.query_params.get("q", "")[:200]
        wanted = search.lower()
        values = [each for each in client.values if wanted in each[0].lower() or wanted in each[1].lower()]
        return self._page(request, "client.html", client=client, values=sorted(values), search=search)

    # -- charts -----------------------------------------------------------------------------------------------------

    def charts(self, request: Request) -> Response:
        metrics = self._console.metrics
        search = request.query_params.get("q", "")[:200]
        names = metrics.names()
        shown = [each for each in names if search.lower() in each.lower()] if search else chosen(names)
        return self._page(
            request,
            "charts.html",
            urls=metrics.urls,
            problems=metrics.problems,
            names=shown[:MAX_CHARTS],
            name_count=len(names),
            search=search,
        )

    def series(self, request: Request) -> Response:
        return JSONResponse({"points": self._console.metrics.of(request.query_params.get("name", ""))})

    def _page(self, request: Request, template: str, **context: Any) -> Response:
        return self._renderer.page(request, template, **context)


MAX_CHARTS: Final = 24
"""A page that is still read as a whole."""
CHOSEN: Final = (
    "bytesin",
    "bytesout",
    "messagesin",
    "requestspersec",
    "underreplicatedpartitions",
    "partitioncount",
    "connection_count",
    "event_loop",
    "process_resident_memory_bytes",
    "process_cpu_seconds_total",
    "consumergroup_lag_sum",
    "log_size",
)
"""Without a search: charts of the metrics whose names contain these, in this order."""


def chosen(names: list[str]) -> list[str]:
    found = [name for part in CHOSEN for name in names if part in name.lower()]
    return list(dict.fromkeys(found)) or names


def _first(search: Search) -> Any:
    search.start()
    for _ in range(RECORD_STEPS):
        step = search.step()
        if step.rows:
            return step.rows[0]
        if step.is_done:
            return None
    raise ClusterError("The record's broker did not answer in time.")
