"""Changes to the cluster: only with --allow-changes, confirmed on a page that says what will happen, and logged.

A form is sent twice: the first time it is answered with the confirmation, which sends it again with confirmed=1. What
is refused comes back with its fields, to be mended and sent again.
"""

import base64
import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from kafkapy.cli.client import confluent, reason_of_kafka
from kafkapy.cli.config_hints import hint
from kafkapy.cli.deadline import TIMEOUT_S
from kafkapy.console import dead_letters, groups, other_groups, share_groups
from kafkapy.console.admin_changes import AdminChanges
from kafkapy.console.brokers import BadRequest, ClusterError, NotFound
from kafkapy.console.change import Change, ChangeLog, Fields, who_asks
from kafkapy.console.client import all_done, failures
from kafkapy.console.fields import number
from kafkapy.console.queries import MAX_OFFSET, group_name, topic_name
from kafkapy.console.render import Renderer, link
from kafkapy.console.security import CSRF_FIELD
from kafkapy.console.state import Console
from kafkapy.types import INT32_MAX

MAX_CONFIGS: Final = 100
"""Kafka has some 35 keys of a topic."""
MAX_VALUE: Final = 1 << 20
"""Far beyond any config, and half of what a form may have (security.MAX_BODY_BYTES)."""
MAX_PARTITIONS: Final = 10_000
"""Guards against a slip of the finger: partitions cannot be taken away again."""
NOT_SENT_BACK: Final = (CSRF_FIELD, "confirmed", "typed", "password")
CAME_FROM: Final = "came_from"
"""A hidden field of the confirmation: the page that had the form. Cancel leads back to it."""
MAX_LINES: Final = 50
"""Of what is to be confirmed."""
OWN_PATH: Final = re.compile(r"/(?![/\\\t\r\n])")
"""How a path on this console begins: browsers take a backslash for a slash, and leave out tabs and ends of lines."""


class Changes:
    """The endpoints of changes. Each field comes from a form and is checked here, whatever the page offered."""

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
        is_of_config = str(error).endswith("(INVALID_CONFIG)")  # the broker's error, not what a form has
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
        name = topic_name(fields)
        partition = number(fields, "partition", 0, 0, INT32_MAX)
        before = number(fields, "before", 0, 0, MAX_OFFSET)

        def run() -> None:
            requested = [confluent().TopicPartition(name, partition, before)]
            all_done(self._console.clients.admin().delete_records(requested, request_timeout=TIMEOUT_S))

        lines = (f"Of partition {partition}, what lies before offset {before} is gone for good.",)
        return Change(f"Delete records of {name}.", lines, run, "Deleted.", link("/topic", name=name), type_name=name)

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
            all_done(self._console.clients.admin().delete_consumer_groups([name], request_timeout=TIMEOUT_S))

        lines = ("Its offsets are gone for good.",)
        return Change(f"Delete the group {name}.", lines, run, f"Deleted {name}.", "/groups", type_name=name)

    def _redrive(self, fields: Fields) -> Change:
        name, choice = topic_name(fields), dead_letters.choice_of(fields)
        if choice.places is None and fields.get("all") != "1":
            raise BadRequest("No letter is chosen.")
        choice = choice._replace(places=None) if fields.get("all") == "1" else choice
        survey = dead_letters.plan(self._console.clients, name, choice)

        def run() -> str:
            return dead_letters.send_back(self._console.clients, survey)

        lines = (
            *(
                f"{topic}-{partition}: {count} given up by {group}."
                for (group, topic, partition), count in sorted(survey.counts.items())[:MAX_LINES]
            ),
            "All groups that read these topics get the records again. The letters stay.",
        )
        back = link("/topic/letters", name=name)
        return Change(f"Send {survey.letter_count} dead letters of {name} back.", lines, run, "Sent back.", back)


def came_from(request: Request) -> str:
    """Return the path and the query of the page that sent a request, "" if that is not known."""
    try:
        parts = urlsplit(request.headers.get("referer", ""))
    except ValueError:
        return ""
    if "/change/" in parts.path:
        return ""
    kept = [(name, value) for name, value in parse_qsl(parts.query) if name != "done"]  # it is not done again
    return f"{parts.path}?{urlencode(kept)}" if kept else parts.path


def own_link(path: str) -> str:
    """Return a path on this console, "" if it is none."""
    return path if OWN_PATH.match(path) else ""


def _key(fields: Fields) -> str:
    key = fields.get("key", "").strip()
    if not 0 < len(key) <= 249:
        raise BadRequest("A config has a key.")
    return key


def _hint(fields: Fields) -> str:
    """Return what a refused config may have meant, of a new topic or of one key."""
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
