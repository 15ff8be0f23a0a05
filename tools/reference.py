"""The reference pages of the site, generated from the code: keys, command line, APIs, metrics.

Each function returns a page in Markdown (MyST, with definition lists). Nothing of it is kept in the repository: `make
docs` makes it anew, so that it cannot be out of date.
"""

import inspect
import re
import socket
import urllib.request
from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import groupby
from typing import Final

from kafkapy import Broker
from kafkapy.cli.command_tree import Command, Option, command_tree
from kafkapy.cli.explained_keys import ExplainedKey, all_keys
from kafkapy.handlers.table import BROKER_APIS, CONTROLLER_APIS, Forwarding, ServedApi
from kafkapy.protocol.api import APIS
from kafkapy.server.admin.catalogue import ABSENT
from tools import api_reference

TITLES: Final = {
    "broker": "Brokers and controllers",
    "topic": "Topics",
    "group": "Groups",
    "client metrics": "Client metrics",
}
SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>#|~$])")
ROW: Final = re.compile(r"(?P<name>[\w:]+)(?:\{(?P<labels>.*)\})? \S+")
LABEL: Final = re.compile(r'(\w+)="(?:[^"\\]|\\.)*",?')


def escaped(text: str) -> str:
    """Return plain text as Markdown that shows it unchanged, what is between backquotes as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return SPECIAL.sub(r"\\\1", text)
    return "".join(code(part) if number % 2 else SPECIAL.sub(r"\\\1", part) for number, part in enumerate(parts))


def code(text: str) -> str:
    return f"`{text}`"


def anchored(kind: str, name: str) -> str:
    """Return a name as code that a link can lead to: #topic-retention-ms, as docutils writes identifiers."""
    identifier = re.sub(r"[^a-z0-9]+", "-", f"{kind}-{name}".lower()).strip("-")
    return f"[{code(name)}]{{#{identifier}}}"


def row(*cells: str) -> str:
    """Return a row of a table."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    names = list(columns)
    yield from ("", row(*names), row(*("---" for _ in names)))
    for each in rows:
        yield row(*each)
    yield ""


# -- keys ---------------------------------------------------------------------------------------------------------


def keys_page() -> str:
    """Return all keys: what each does here, type, default, valid values, whether it changes at run time."""
    lines = [
        "# Configuration keys",
        "",
        "The keys of Apache Kafka 4.4.0 that a node accepts, and kafkapy's own, with what they do *here*. A broker",
        "tells the same (DescribeConfigs), and so does `kafkapy configs explain KEY`, without a broker.",
        "",
    ]
    shown = [each for each in all_keys() if not each.definition.is_internal]
    for kind, of_kind in groupby(shown, key=lambda each: each.kind):
        lines += [f"## {TITLES[kind]}", ""]
        for each in sorted(of_kind, key=lambda key: key.definition.key):
            lines += _key(each)
    return "\n".join(lines)


def _key(explained: ExplainedKey) -> Iterator[str]:
    definition = explained.definition
    default = "required" if definition.is_required else f"default {code(definition.default_text or 'unset')}"
    facts = [
        escaped(definition.type.name.lower()),
        default,
        escaped(definition.valid_values),
        escaped(explained.changes),
    ]
    yield anchored(explained.kind.replace(" ", "-"), definition.key)
    yield f": {escaped(explained.documentation)}"
    yield ""
    yield f"  {'; '.join(filter(None, facts))}"
    yield ""


# -- command line -------------------------------------------------------------------------------------------------


def commands_page() -> str:
    """Return all commands with their arguments and options, from the parsers."""
    lines = ["# Command line", "", "Every command takes `-h`. Exit status: 0 done; 1 failed, a line on standard error"]
    lines += ["says why; 2 the command line is wrong; 130 Ctrl-C.", ""]
    for command in command_tree().walk():
        if command.path:
            lines += _command(command)
    return "\n".join(lines)


def _command(command: Command) -> Iterator[str]:
    usage = " ".join(("kafkapy", *command.path, *(each.metavar for each in command.arguments)))
    yield f"{'#' * (len(command.path) + 1)} {code(usage)}"
    yield ""
    for paragraph in (command.help, *command.more):
        yield escaped(paragraph)
        yield ""
    for argument in command.arguments:
        yield code(argument.metavar)
        yield f": {escaped(argument.help)}"
        yield ""
    for option in command.options:
        yield from _option(option)


def _option(option: Option) -> Iterator[str]:
    value = f" {option.metavar}" if option.metavar else ""
    yield code(", ".join(option.flags) + value)
    yield f": {escaped(' '.join(option.help.split()))}"
    yield ""


# -- APIs ---------------------------------------------------------------------------------------------------------


def apis_page() -> str:
    """Return the APIs with their versions, and what their handlers say about each."""
    lines = [
        "# APIs and versions",
        "",
        "What ApiVersions lists is served, and nothing else. "
        "With `kafkapy.legacy.clients.enable=true` the older versions of "
        + ", ".join(APIS[key].name for key, row in BROKER_APIS.items() if row.has_legacy)
        + " are served, too.",
        "",
        "## Listeners of clients",
        *table(("Key", "API", "Versions", "Of Kafka 4.4.0", ""), (_api(each, "api") for each in BROKER_APIS.values())),
        "## Listeners of controllers",
        *table(
            ("Key", "API", "Versions", "Of Kafka 4.4.0", ""),
            (_api(each, "controller-api") for each in CONTROLLER_APIS.values()),
        ),
        "## Notes of the handlers",
        "",
    ]
    served = {api.handler: api for api in (*CONTROLLER_APIS.values(), *BROKER_APIS.values())}
    for handler in sorted(served, key=lambda name: APIS[served[name].api_key].name):
        lines += _notes(handler)
    return "\n".join(lines)


def _api(api: ServedApi, kind: str) -> tuple[str, ...]:
    known = APIS[api.api_key]
    note = "forwarded to the active controller" if api.forwarding is Forwarding.WHOLE else ""
    served = f"{api.served_min}-{api.max_version}" if api.served_min != api.max_version else str(api.max_version)
    return str(api.api_key), anchored(kind, known.name), served, f"{known.min_version}-{known.max_version}", note


def _notes(handler: str) -> Iterator[str]:
    """Yield the docstring of a handler's module, as it stands in the code."""
    text = inspect.getdoc(import_module(f"kafkapy.{handler}")) or ""
    head, _, rest = text.partition("\n")
    yield f"### {escaped(head)}"
    yield ""
    if rest.strip():
        yield f"```text\n{rest.strip()}\n```"
        yield ""


# -- metrics ------------------------------------------------------------------------------------------------------


def metrics_page() -> str:
    """Return the metrics of a node that has a topic and a group: names, types, labels, beans."""
    lines = [
        "# Metrics",
        "",
        "What /metrics of a broker and controller in one serves that has a topic and a group with a member. "
        "`kafkapy.metrics.names` chooses the names, `kafkapy.metrics.rules` takes a rules file of the JMX exporter "
        "instead. Nodes of a larger cluster have further series: of replication, and of the quorum's followers.",
        "",
    ]
    for names in ("strimzi", "confluent"):
        lines += [f"## `kafkapy.metrics.names={names}`"]
        rows = [(anchored(names, name), *more) for name, *more in metric_rows(_scrape(names))]
        lines += table(("Name", "Type", "Labels", "MBean"), rows)
    lines += [
        "## Not served",
        "",
        "Names of Apache Kafka's metrics, by Strimzi's rules, whose subject does not exist here.",
    ]
    lines += table(("Name", "Why"), [(code(name), reason) for name, reason in sorted(ABSENT.items())])
    return "\n".join(lines)


def metric_rows(text: str) -> list[tuple[str, ...]]:
    """Return (name, type, labels, source) of the families of a scrape, by name."""
    helps, kinds = dict[str, str](), dict[str, str]()
    labels: dict[str, set[str]] = {}
    for line in text.splitlines():
        if line.startswith("# "):
            _, what, name, rest = line.split(" ", 3)
            (helps if what == "HELP" else kinds)[name] = rest
        elif (found := ROW.fullmatch(line)) is not None:
            name = found["name"] if found["name"] in kinds else found["name"].rpartition("_")[0]
            labels.setdefault(name, set()).update(LABEL.findall(found["labels"] or ""))
    return [
        (name, kinds[name], ", ".join(sorted(labels.get(name, ()))), code(helps.get(name, "")))
        for name in sorted(kinds)
    ]


def _scrape(names: str) -> str:
    """Return a scrape of a node that has served a producer, and a consumer in a group."""
    from confluent_kafka import Consumer, Producer

    with socket.create_server(("127.0.0.1", 0)) as reserved:
        address = "{}:{}".format(*reserved.getsockname())
    properties = {"kafkapy.admin.listener": address, "kafkapy.metrics.names": names}
    with Broker(properties={**properties, "group.initial.rebalance.delay.ms": 0}) as broker:
        client = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
        producer = Producer(client)
        producer.produce("orders", b"1")
        producer.flush()
        consumer = Consumer({**client, "group.id": "readers", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        while (message := consumer.poll(1)) is None or message.error() is not None:
            pass
        consumer.commit()
        try:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as response:
                return str(response.read().decode())
        finally:
            consumer.close()


PAGES: Final = {
    "docs/reference/keys.md": keys_page,
    "docs/reference/commands.md": commands_page,
    "docs/reference/apis.md": apis_page,
    "docs/reference/metrics.md": metrics_page,
    "docs/reference/python.md": api_reference.python_page,
}
"""What makes each page of the reference, by its place on the site."""
