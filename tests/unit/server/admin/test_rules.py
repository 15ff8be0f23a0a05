"""Rules of the JMX exporter: the names, types, labels and values that they make."""

from pathlib import Path

import pytest

from kafkapy.errors import ConfigError
from kafkapy.gauge import Distribution, Gauge, Measured, Row
from kafkapy.metrics.histogram import new_histogram
from kafkapy.server.admin.metrics import Exposition
from kafkapy.server.admin.rules import MAX_BYTES, Rules

pytest.importorskip("re2")
pytest.importorskip("yaml")

SERVER = "kafka.server:type=BrokerTopicMetrics"
BYTES_IN = Gauge(SERVER, "BytesInPerSec", 42, (("topic", "t"),), is_counter=True)
STRIMZIS = Path("tests/compat/jmx_rules.yaml")
SOCKETS = "kafka.server:type=socket-server-metrics"
WHERE = (("listener", "PLAINTEXT"), ("networkProcessor", "0"))
COUNTS = new_histogram()
COUNTS[7] = 3
MEASURED: list[Measured] = [
    BYTES_IN,
    Gauge(SERVER, "BytesInPerSec", 43, is_counter=True),
    Gauge("kafka.network:type=RequestMetrics", "ErrorsPerSec", 1, (("request", "A"), ("error", "B")), is_counter=True),
    Gauge("kafka.server:type=ReplicaManager", "LeaderCount", 3),
    Gauge("kafka.server:type=KafkaRequestHandlerPool", "RequestHandlerAvgIdlePercent", 0.5),
    Gauge("kafka.network:type=SocketServer", "NetworkProcessorAvgIdlePercent", 0.5),
    Gauge("kafka.server:type=raft-metrics", "high-watermark", 9),
    Gauge("kafka.server:type=broker-metadata-metrics", "last-applied-record-offset", 9),
    Gauge(SOCKETS, "connection-count", 2, WHERE),
    Gauge(SOCKETS, "connection-close-total", 2, WHERE, is_counter=True),
    Gauge(SOCKETS, "connections", 2, (("clientSoftwareName", "c"), ("clientSoftwareVersion", "1"), *WHERE)),
    Distribution("kafka.network:type=RequestMetrics", "TotalTimeMs", (("request", "A"),), [COUNTS]),
    Row((("kafka.log:type=Log", "Size"),), (5,), (("partition", "0"), ("topic", "t"))),
    Gauge("", "kafka_consumergroup_members", 1, (("consumergroup", "g"),)),
]


def shown(measured: list[Measured], rules: Rules | None) -> set[str]:
    exposition = Exposition(rules=rules)
    for _ in exposition.render(measured, "", 0.0):
        pass
    return {line for line in exposition.body.decode().splitlines() if not line.startswith("# HELP")}


def rules_of(tmp_path: Path, text: str) -> Rules:
    path = tmp_path / "rules.yaml"
    path.write_text(text)
    return Rules(str(path))


def test_strimzis_rules_make_strimzis_names() -> None:
    assert shown(MEASURED, Rules(str(STRIMZIS))) == shown(MEASURED, None)


def test_the_first_rule_that_matches_counts(tmp_path: Path) -> None:
    text = """
        rules:
        - pattern: kafka.(\\w+)<type=(.+), name=(.+)PerSec, topic=(.+)><>Count
          name: my--$1_$3
          labels: {of: "$4", none: "$9"}
          type: GAUGE
          valueFactor: 0.5
          help: of $2
        - pattern: .*
    """
    assert shown([BYTES_IN], rules_of(tmp_path, text)) == {
        "# TYPE my_server_BytesIn gauge",
        'my_server_BytesIn{of="t"} 21.0',
    }


def test_a_client_id_in_a_help_text_adds_no_line(tmp_path: Path) -> None:
    text = """
        rules:
        - pattern: (?s)kafka.server<type=Produce, user=, client_id=(.*)><>byte-rate
          name: rates
          help: of $1
    """
    tags = (("user", ""), ("client_id", 'x\nforged{a="b"} 1\n'))
    exposition = Exposition(rules=rules_of(tmp_path, text))
    for _ in exposition.render([Gauge("kafka.server:type=Produce", "byte-rate", 1, tags)], "", 0.0):
        pass
    assert exposition.body.decode().splitlines() == [
        r'# HELP rates of "x\\nforged{a=\\"b\\"} 1\\n"',
        "# TYPE rates untyped",
        "rates 1",
    ]


def test_a_rule_may_take_the_value_into_a_label(tmp_path: Path) -> None:
    text = """
        rules:
        - pattern: "LeaderCount><>Value: (.+)"
          name: leaders
          value: 1
          labels: {count: "$1"}
    """
    rules = rules_of(tmp_path, text)
    for count in (3, 4):
        gauge = Gauge("kafka.server:type=ReplicaManager", "LeaderCount", count)
        assert f'leaders{{count="{count}"}} 1.0' in shown([gauge], rules)


def test_without_a_name_the_metric_is_called_after_its_mbean(tmp_path: Path) -> None:
    found = shown([BYTES_IN], rules_of(tmp_path, "lowercaseOutputName: true"))
    assert 'kafka_server_brokertopicmetrics_count{name="BytesInPerSec",topic="t"} 42' in {
        line.removesuffix(".0") for line in found
    }


def test_object_names_are_included_and_excluded(tmp_path: Path) -> None:
    text = 'includeObjectNames: ["kafka.server:*"]\nexcludeObjectNames: ["kafka.server:type=BrokerTopicMetrics,*"]\n'
    found = shown(MEASURED, rules_of(tmp_path, text))
    assert any(line.startswith("kafka_server_ReplicaManager") for line in found)
    assert not any("BrokerTopicMetrics" in line or line.startswith("kafka_network") for line in found)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rules: [{pattern: '('}]", r"Invalid value .* for configuration kafkapy.metrics.rules: .*"),
        ("rules: [{pattern: '(?=a)b'}]", "kafkapy.metrics.rules"),
        ("rules: [{type: HISTOGRAM}]", "type HISTOGRAM of a rule is none of"),
        ("rules: [text]", "a rule is a mapping"),
        ("rules: {}\nrules: {a: b}", "rules must be a list"),
        ("[", "it is no YAML"),
        ("text", "it has no rules"),
        ("#" * (MAX_BYTES + 1), "it is larger than"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        rules_of(tmp_path, text)


def test_a_missing_file_is_refused_by_name() -> None:
    with pytest.raises(
        ConfigError, match=r"Invalid value /none for configuration kafkapy\.metrics\.rules: it cannot be read"
    ):
        Rules("/none")


def test_a_runaway_pattern_takes_no_time(tmp_path: Path) -> None:
    rules = rules_of(tmp_path, "rules: [{pattern: '(a+)+b', name: x}]")
    gauge = Gauge("kafka.server:type=X", "Y", 1, (("topic", "a" * 65_536),))
    assert shown([gauge], rules) == set()


def test_values_are_quoted_as_in_the_name_of_an_mbean(tmp_path: Path) -> None:
    """Strimzi's and other rules take the quotes away; what they are around is ObjectName.quote's."""
    text = """
        rules:
        - pattern: (?s)<type=LogManager, name=LogDirectoryOffline, logDirectory="(.+)"><>Value
          name: offline
          labels: {path: "$1"}
    """
    path = '/var/lib/kafka "1" *?\\\n'
    gauge = Gauge("kafka.log:type=LogManager", "LogDirectoryOffline", 0, (("logDirectory", path),))
    assert shown([gauge], rules_of(tmp_path, text)) == {
        "# TYPE offline untyped",
        r'offline{path="/var/lib/kafka \\\"1\\\" \\*\\?\\\\\\n"} 0',
    }
