"""Changes of the cluster: only with --allow-changes, confirmed on a page that says what will happen, and logged.

A form is sent twice. The first response is a page for confirmation, which sends the form again with confirmed=1. A
refused form is shown again with its fields, to be corrected.
"""

import base64
from collections.abc import Callable, Iterable
from typing import Any, Final
from urllib.parse import urlencode

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from kafkapy.cli.client import confluent, reason_of_kafka
from kafkapy.cli.config_hints import hint
from kafkapy.cli.consumer_groups import delete_group
from kafkapy.cli.deadline import TIMEOUT_S
from kafkapy.console import dead_letters, groups, other_groups, share_groups, topics
from kafkapy.console.admin_changes import AdminChanges
from kafkapy.console.brokers import BadRequest, ClusterError, NotFound
from kafkapy.console.change import Change, ChangeLog, Fields, who_asks
from kafkapy.console.client import all_done, failures
from kafkapy.console.fields import number
from kafkapy.console.queries import MAX_OFFSET, group_name, topic_name
from kafkapy.console.render import Renderer, came_from, link, own_link
from kafkapy.console.security import CSRF_FIELD
from kafkapy.console.state import Console
from kafkapy.types import INT32_MAX, TopicPartition

MAX_CONFIGS: Final = 100
"""Configs of a new topic: Kafka has some 35 keys."""
MAX_VALUE: Final = 1 << 20
"""Characters of a config: far more than needed, and half of a form (security.MAX_BODY_BYTES)."""
MAX_PARTITIONS: Final = 10_000
"""Protects from typing errors: partitions cannot be removed."""
NOT_SENT_BACK: Final = (CSRF_FIELD, "confirmed", "typed", "password")
CAME_FROM: Final = "came_from"
"""A hidden field of the confirmation: the page with the form, to which Cancel leads back."""
MAX_LINES: Final = 50
"""Lines of a confirmation."""


class Changes:
    """The endpoints of changes. All fields of a form are checked here, whatever the page offered."""

    def __init__(self, console: Console, renderer: Renderer) -> None:
        self._console = console
        self._renderer = renderer
        self._log = ChangeLog(console.settings)
        self._kinds: dict[str, Callable[[Fields], Change]] = {
            "create-topic": self._create_topic,
            "delete-topic": self._delete_topic,
            "add-partitions": self._add_partitions,
            "set-config": self._set_config,
            "reset-config": self._reset_config,
            "produce": self._produce,
            "delete-records": self._delete_records,
            "reset-offsets": self._reset_offsets,
            "delete-group": self._delete_group,
            **AdminChanges(console).kinds(),
            "redrive": self._redrive,
        }

    def routes(self) -> list[Route]:
        return [Route("/change/{kind}", self.endpoint, methods=["POST"])]

    async def endpoint(self, request: Request) -> Response:
        make = self._kinds.get(request.path_params["kind"])
        if make is None:
            raise NotFound("There is no such change.")
        if not request.state.may_change:
            return self._renderer.page(request, "error.html", 403, problem=request.state.why_no_change)
        form = await request.form(max_files=0, max_fields=1000)
        fields = {name: value for name, value in form.items() if isinstance(value, str)}
        fields.setdefault(CAME_FROM, came_from(request))
        who = who_asks(request)
        return await to_thread.run_sync(self._confirm_or_make, request, make, fields, who)

    def _confirm_or_make(
        self, request: Request, make: Callable[[Fields], Change], fields: dict[str, str], who: str
    ) -> Response:
        hidden = {name: value for name, value in fields.items() if name not in NOT_SENT_BACK}
        try:
            change = make(fields)
        except ClusterError as error:
            return self._refused(request, "", error, hidden)
        problem = None
        if fields.get("confirmed") == "1":
            if change.asks_password and not fields.get("password"):
                problem = "Give a password."
            elif not change.type_name or fields.get("typed") == change.type_name:
                try:
                    return self._make(change, who)
                except ClusterError as error:
                    return self._refused(request, change.title, error, hidden)
            else:
                problem = f"Type {change.type_name} to confirm."
        cancel = own_link(fields[CAME_FROM]) or change.back
        return self._renderer.page(
            request, "confirm.html", change=change, fields=hidden, problem=problem, cancel=cancel
        )

    def _refused(self, request: Request, title: str, error: ClusterError, fields: dict[str, str]) -> Response:
        """Return the page that says why a change was refused or failed, with the fields of the form.

        title: of a change that was begun, and may have been made in part; "" if it was not.
        """
        given = {name: value for name, value in fields.items() if name != CAME_FROM}
        is_of_config = str(error).endswith("(INVALID_CONFIG)")  # the broker's error, not a field of a form
        return self._renderer.page(
            request,
            "refused.html",
            error.status,
            title=title,
            problem=f"{error}{_hint(given) if is_of_config else ''}",
            fields=given,
            came_from=own_link(fields[CAME_FROM]),
        )

    def _make(self, change: Change, who: str) -> Response:
        summary = f"{change.title} {' '.join(change.lines)}"
        try:
            done = change.run() or change.done
        except ClusterError as error:
            self._log.refused(who, summary, str(error))
            raise
        self._log.changed(who, summary)
        path, _, query = (self._renderer.base + change.back).partition("?")
        summary = urlencode({"done": done})
        return RedirectResponse(f"{path}?{query}&{summary}" if query else f"{path}?{summary}", 303)

    # -- topics -----------------------------------------------------------------------------------------------------

    def _create_topic(self, fields: Fields) -> Change:
        name = topic_name(fields)
        partitions = number(fields, "partitions", -1, 1, MAX_PARTITIONS)
        replicas = number(fields, "replicas", -1, 1, 1000)
        configs = _configs(fields.get("configs", ""))

        def run() -> None:
            new = confluent().admin.NewTopic(name, partitions, replicas, config=configs)
            all_done(self._console.clients.admin().create_topics([new], request_timeout=TIMEOUT_S))

        lines = [
            f"Partitions: {partitions if partitions > 0 else 'as many as the broker makes by default'}.",
            f"Replicas: {replicas if replicas > 0 else 'as many as the broker makes by default'}.",
            *(f"{key} = {value}" for key, value in configs.items()),
        ]
        return Change(f"Create the topic {name}.", tuple(lines), run, f"Created {name}.", link("/topic", name=name))

    def _delete_topic(self, fields: Fields) -> Change:
        name = topic_name(fields)

        def run() -> None:
            all_done(self._console.clients.admin().delete_topics([name], request_timeout=TIMEOUT_S))

        lines = ("All its records are gone for good.",)
        return Change(f"Delete the topic {name}.", lines, run, f"Deleted {name}.", "/topics", type_name=name)

    def _add_partitions(self, fields: Fields) -> Change:
        name = topic_name(fields)
        count = number(fields, "partitions", 0, 1, MAX_PARTITIONS)

        def run() -> None:
            new = confluent().admin.NewPartitions(name, count)
            all_done(self._console.clients.admin().create_partitions([new], request_timeout=TIMEOUT_S))

        lines = (
            "Partitions cannot be taken away again.",
            "Records of a key may go to another partition than those before them.",
        )
        return Change(
            f"Let {name} have {count} partitions.", lines, run, f"{name} has {count}.", link("/topic", name=name)
        )

    def _set_config(self, fields: Fields) -> Change:
        name, key, value = topic_name(fields), _key(fields), fields.get("value", "")[:MAX_VALUE]

        def run() -> None:
            self._alter(name, key, value, "SET")

        lines = (f"{key} = {value}",)
        return Change(f"Set a config of {name}.", lines, run, f"Set {key}.", link("/topic/configs", name=name))

    def _reset_config(self, fields: Fields) -> Change:
        name, key = topic_name(fields), _key(fields)

        def run() -> None:
            self._alter(name, key, None, "DELETE")

        lines = ("The broker's value applies again.",)
        return Change(f"Remove {key} from {name}.", lines, run, f"Removed {key}.", link("/topic/configs", name=name))

    def _alter(self, topic: str, key: str, value: str | None, operation: str) -> None:
        kafka_admin = confluent().admin
        entry = kafka_admin.ConfigEntry(key, value, incremental_operation=kafka_admin.AlterConfigOpType[operation])
        resource = kafka_admin.ConfigResource(kafka_admin.ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin = self._console.clients.admin()
        all_done(admin.incremental_alter_configs([resource], request_timeout=TIMEOUT_S))

    # -- records ----------------------------------------------------------------------------------------------------

    def _produce(self, fields: Fields) -> Change:
        name = topic_name(fields)
        partition = number(fields, "partition", -1, 0, INT32_MAX)
        key = None if fields.get("null_key") == "1" else _given_bytes(fields, "key")
        value = None if fields.get("null_value") == "1" else _given_bytes(fields, "value")
        headers = [(key, each.encode()) for key, each in _pairs(fields.get("headers", ""))]

        def run() -> None:
            self._send(name, partition, key, value, headers)

        where = f"partition {partition}" if partition >= 0 else "a partition chosen by its key"
        lines = (
            f"To {where}.",
            "Key: null." if key is None else f"Key: {len(key)} bytes.",
            "Value: null." if value is None else f"Value: {len(value)} bytes.",
            f"Headers: {len(headers)}.",
        )
        return Change(f"Produce a record to {name}.", lines, run, "Produced.", link("/topic/messages", name=name))

    def _send(self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: Any) -> None:
        errors: list[Any] = []
        with failures():
            producer = self._console.clients.producer()
            producer.produce(
                topic, value, key, partition, headers=headers, on_delivery=lambda error, _: errors.append(error)
            )
            producer.flush(TIMEOUT_S + 2)
        if not errors:
            raise ClusterError("The record was not delivered in time.")
        if errors[0] is not None:  # to compare a KafkaError with None by == leaves an exception set in confluent-kafka
            raise ClusterError(reason_of_kafka(errors[0], None))

    def _delete_records(self, fields: Fields) -> Change:
        """Of one partition, or all; before an offset, or all records."""
        name = topic_name(fields)
        partition = number(fields, "partition", -1, 0, INT32_MAX)
        before = number(fields, "before", -1, 0, MAX_OFFSET)
        topic = self._console.brokers.topic(name)
        if partition >= 0:
            topics.check_any_partition(topic, [partition])
        ends = topics.offsets(self._console.brokers, [topic], topics.LATEST)
        goals: dict[int, int] = {}
        for each in sorted(each.partition_index for each in topic.partitions):
            if partition == -1:  # of a partition that ends earlier, all records: beyond its end is refused
                goals[each] = min(before, ends.get(TopicPartition(name, each), before))
            elif partition == each:
                goals[each] = before

        def run() -> None:
            requested = [
                confluent().TopicPartition(name, each, confluent().OFFSET_END if before < 0 else goal)
                for each, goal in goals.items()
            ]
            all_done(self._console.clients.admin().delete_records(requested, request_timeout=TIMEOUT_S))

        lines = _bounded(
            f"Of partition {each}, what lies before offset {goal} is gone for good."
            if before >= 0
            else f"Of partition {each}, all records are gone for good: those before offset "
            f"{ends.get(TopicPartition(name, each), 'that is not known')}, and what comes until it is done."
            for each, goal in goals.items()
        )
        title = f"Delete {'all ' if partition < 0 and before < 0 else ''}records of {name}."
        return Change(title, lines, run, "Deleted.", link("/topic", name=name), type_name=name)

    # -- groups -----------------------------------------------------------------------------------------------------

    def _reset_offsets(self, fields: Fields) -> Change:
        name, topic, to = group_name(fields), fields.get("topic", ""), fields.get("to", "")
        offsets = share_groups.offsets_of(self._console.clients, name)
        plan = groups.plan_reset(offsets, topic, to)
        before = {number: "nothing" if each.before is None else each.before for number, each in enumerate(plan)}

        def run() -> None:
            group = other_groups.any_group(self._console.brokers, self._console.clients, name)
            if group.members:
                raise ClusterError("The group has members: stop them first.")
            groups.reset(offsets, plan)

        lines = tuple(f"{each.topic}-{each.partition}: {before[i]} → {each.after}" for i, each in enumerate(plan))
        return Change(f"Reset the offsets of {name}.", lines, run, "Reset.", link("/group", name=name))

    def _delete_group(self, fields: Fields) -> Change:
        name = group_name(fields)

        def run() -> None:
            with failures():
                delete_group(self._console.clients, name)

        lines = ("Its offsets are gone for good.",)
        return Change(f"Delete the group {name}.", lines, run, f"Deleted {name}.", "/groups", type_name=name)

    def _redrive(self, fields: Fields) -> Change:
        name, choice = topic_name(fields), dead_letters.choice_of(fields)
        if choice.places is None and fields.get("all") != "1":
            raise BadRequest("No letter is chosen.")
        choice = choice._replace(places=None) if fields.get("all") == "1" else choice
        unfinished = self._console.redrives
        turn = unfinished.turn_of(name)
        survey = dead_letters.plan(self._console.clients, name, choice, unfinished.of(name, choice))

        def run() -> str:
            with unfinished.taking(name, turn):
                return dead_letters.send_back(self._console.clients, survey, unfinished)

        before = f"{len(survey.delivered)} letters went back when this was tried before: they stay out."
        lines = (
            *((before,) if survey.delivered else ()),
            *_bounded(
                f"{topic}-{partition}: {count} given up by {group}."
                for (group, topic, partition), count in sorted(survey.counts.items())
            ),
            "All groups that read these topics get the records again. The letters stay.",
        )
        back = link("/topic/letters", name=name)
        return Change(f"Send {survey.letter_count} dead letters of {name} back.", lines, run, "Sent back.", back)


def _bounded(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the first MAX_LINES lines of a confirmation, and one that says how many others there are."""
    every = tuple(lines)
    more = len(every) - MAX_LINES
    return (*every[:MAX_LINES], f"And {more} more like these.") if more > 0 else every


def _key(fields: Fields) -> str:
    key = fields.get("key", "").strip()
    if not 0 < len(key) <= 249:
        raise BadRequest("A config has a key.")
    return key


def _hint(fields: Fields) -> str:
    """Return a hint for a refused config of a new topic, or of one key."""
    return hint([(fields["key"], fields.get("value"))] if "key" in fields else _pairs(fields.get("configs", "")))


def _configs(text: str) -> dict[str, str]:
    return dict(_pairs(text))


def _pairs(text: str) -> list[tuple[str, str]]:
    """Parse lines of NAME=VALUE."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > MAX_CONFIGS:
        raise BadRequest(f"At most {MAX_CONFIGS} lines.")
    pairs = [line.partition("=") for line in lines]
    for name, equals, _ in pairs:
        if not name.strip() or not equals:
            raise BadRequest(f"{name[:100]}: a line reads NAME=VALUE.")
    return [(name.strip(), value.strip()) for name, _, value in pairs]


def _given_bytes(fields: Fields, name: str) -> bytes:
    """Return the bytes of a field of the form to produce. Raises BadRequest."""
    text = fields.get(name, "")
    if fields.get("encoding") != "base64":
        return _unix(text).encode()
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise BadRequest(f"{name}: this is not base64.") from None


def _unix(text: str) -> str:
    """Browsers send the ends of lines as CRLF."""
    return text.replace("\r\n", "\n")
