"""What a job can be told, and what it answers to what it cannot be told."""

import pytest

from spark_jobs.backfill import GoldBackfill
from spark_jobs.bronze import BronzeConfig
from spark_jobs.config import describe, duration_ms, load_config, refuse_unknown
from spark_jobs.errors import JobError
from spark_jobs.feed import FeedConfig
from spark_jobs.fills import FillsConfig
from spark_jobs.gold import GoldConfig
from spark_jobs.page import PageConfig
from spark_jobs.quotes import QuotesConfig
from spark_jobs.replay import ReplayConfig
from spark_jobs.silver import SilverConfig

BRONZE = "bootstrap_servers: b:1\ntopics: [t]\ncheckpoint: c\noutput: o\n"


def test_the_file_and_what_is_set_over_it(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(BRONZE + "kafka: {security.protocol: SSL}\n")
    sets = ["kafka.sasl.mechanism=PLAIN", "max_offsets_per_trigger=5", "trigger=available_now"]
    config = load_config(BronzeConfig, path, sets)
    assert config.kafka == {"security.protocol": "SSL", "sasl.mechanism": "PLAIN"}
    assert (config.max_offsets_per_trigger, config.available_now) == (5, True)


def test_options_of_clients_may_be_true_false_or_numbers(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(BRONZE + "kafka: {enable.idempotence: true, retries: 3}\nspark: {spark.speculation: no}\n")
    config = load_config(BronzeConfig, path)
    assert config.kafka == {"enable.idempotence": "true", "retries": "3"}
    assert config.spark == {"spark.speculation": "false"}


def test_the_environment_goes_over_the_file_and_under_what_is_set(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(BRONZE)
    environment = {
        "SPARK_JOBS_CHECKPOINT": "s3a://bucket/c",
        "SPARK_JOBS_KAFKA": "{security.protocol: SSL}",
        "SPARK_JOBS_OUTPUT": "from-environment",
        "SPARK_JOBS_TRACE": "1",
    }
    config = load_config(BronzeConfig, path, ["output=set"], environment)
    assert (config.checkpoint, config.kafka, config.output) == ("s3a://bucket/c", {"security.protocol": "SSL"}, "set")
    with pytest.raises(JobError, match="SPARK_JOBS_TOPICS: the value is not YAML"):
        load_config(BronzeConfig, path, (), {"SPARK_JOBS_TOPICS": "["})


def test_a_wrong_value_names_what_has_set_it_over_the_file(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(BRONZE)
    environment = {"SPARK_JOBS_TOPICS": "trades", "SPARK_JOBS_MIN_PARTITIONS": "0"}
    with pytest.raises(JobError) as error:
        load_config(BronzeConfig, path, ["min_partitions=-1", "shuffle_partitions=4"], environment)
    assert str(error.value) == (
        f"{path}: topics: Input should be a valid list (from SPARK_JOBS_TOPICS); "
        "min_partitions: Input should be greater than or equal to 1 (from --set min_partitions)"
    )


def test_a_wrong_value_of_the_file_is_not_blamed_on_another_option_that_is_set(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("bootstrap_servers: b:1\nkafka: {a: [1]}\nmarket: {seed: x}\n")
    with pytest.raises(JobError) as error:
        load_config(FeedConfig, path, ["kafka.b=1", "market.events=0"])
    assert str(error.value) == (
        f"{path}: kafka.a: Input should be a valid string; "
        "market.events: Input should be greater than or equal to 1 (from --set market.events); "
        "market.seed: Input should be a valid integer, unable to parse string as an integer"
    )


def test_a_service_of_kubernetes_sets_no_port():
    """A service spark-jobs gives each pod SPARK_JOBS_PORT, one spark-jobs-metrics SPARK_JOBS_METRICS_PORT."""
    urls = {"SPARK_JOBS_PORT": "tcp://10.0.0.1:80", "SPARK_JOBS_METRICS_PORT": "tcp://10.0.0.1:81"}
    config = load_config(PageConfig, None, ["bootstrap_servers=b:1"], urls)
    assert (config.port, config.metrics_port) == (8090, None)
    assert load_config(PageConfig, None, ["bootstrap_servers=b:1"], {"SPARK_JOBS_PORT": "80"}).port == 80


def test_a_variable_that_is_no_key_of_any_job_is_refused():
    keys = ["topics", "checkpoint", "bars"]
    refuse_unknown(["SPARK_JOBS_BARS", "SPARK_JOBS_TRACE", "SPARK_JOBS_FAILPOINTS", "SPARK_HOME", "PATH"], keys)
    of_services = ["SERVICE_HOST", "SERVICE_PORT_HTTP", "PORT", "PORT_80_TCP_ADDR", "PAGE_SERVICE_HOST", "PAGE_PORT"]
    refuse_unknown([f"SPARK_JOBS_{name}" for name in of_services], keys)  # Kubernetes gives them to each pod
    with pytest.raises(JobError, match=r"^SPARK_JOBS_TOPIC: no job has such a key, is SPARK_JOBS_TOPICS meant\?$"):
        refuse_unknown(["SPARK_JOBS_CHECKPOINT", "SPARK_JOBS_TOPIC"], keys)
    with pytest.raises(JobError, match=r"^SPARK_JOBS_X9: no job has such a key$"):
        refuse_unknown(["SPARK_JOBS_X9"], keys)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0123", "0123"),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("2024-01-01", "2024-01-01"),
        ("no #1", "no #1"),
        ("@x*&%", "@x*&%"),
        ("", ""),
        ('M required username="a" password="b: c";', 'M required username="a" password="b: c";'),
        ("'[a]'", "[a]"),
        ('"', '"'),
    ],
)
def test_an_option_that_is_set_is_passed_on_as_it_is_written(text, value):
    sets = ["bootstrap_servers=b:1", f"kafka.sasl.password={text}", f"topic_config.a.b={text}"]
    config = load_config(FeedConfig, None, sets)
    assert (config.kafka, config.topic_config) == ({"sasl.password": value}, {"a.b": value})


def test_offsets_are_json_or_what_yaml_makes_of_it():
    sets = ["bootstrap_servers=b:1", "topics=[t]", "checkpoint=c", "output=o"]
    for text in ('{"t": {"0": 5}}', '\'{"t": {"0": 5}}\''):
        config = load_config(BronzeConfig, None, [*sets, f"starting_offsets={text}", "kafka.retries=3"])
        assert (config.starting_offsets, config.kafka) == ('{"t": {"0": 5}}', {"retries": "3"})


@pytest.mark.parametrize("setting", ["market.median_lag_ms=.inf", "market.start_ms=100000000000000", "speed=.nan"])
def test_a_number_that_no_market_has_is_refused(setting):
    with pytest.raises(JobError, match=rf"^configuration: {setting.partition('=')[0]}: Input should be"):
        load_config(FeedConfig, None, ["bootstrap_servers=b:1", setting])


def test_a_key_in_a_key():
    config = load_config(FeedConfig, None, ["bootstrap_servers=b:1", "market.seed=9", "market.events=3"])
    assert (config.market.seed, config.market.events) == (9, 3)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (BRONZE + "topic: t\n", "topic: no such key"),
        (BRONZE.replace("topics: [t]\n", ""), "exactly one of topics and topic_pattern is needed"),
        (BRONZE + "topic_pattern: t.*\n", "exactly one of topics and topic_pattern is needed"),
        (BRONZE + "trigger: soon\n", "trigger: a duration reads as"),
        (BRONZE + "starting_offsets: oldest\n", "starting_offsets: earliest, latest or offsets as"),
        (BRONZE + "starting_offsets: {t: 5}\n", "starting_offsets: earliest, latest or offsets as"),
        (BRONZE + "master: here\n", "master: a master reads as"),
        (BRONZE + "max_offsets_per_trigger: 0\n", "max_offsets_per_trigger: Input should be greater"),
        ("topics: [t]\n", "bootstrap_servers: Field required"),
        (BRONZE + "stop_timeout_s: .inf\n", "stop_timeout_s: Input should be a finite number"),
        (BRONZE + "output: 2024-13-45\n", "is not YAML: month must be in 1..12"),
        ("- 1\n", "a mapping of keys to values is expected"),
        ("a: [", "is not YAML"),
    ],
)
def test_what_is_wrong_is_reported_in_one_line(tmp_path, text, told):
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with pytest.raises(JobError, match=told) as error:
        load_config(BronzeConfig, path)
    assert "\n" not in str(error.value)
    assert "job.yaml" in str(error.value)


@pytest.mark.parametrize("override", ["topics", "kafka=[", "topics.x=1", "output=2024-13-45"])
def test_what_is_set_wrongly(override):
    sets = ["bootstrap_servers=b:1", "topics=[t]", override]
    with pytest.raises(JobError, match="--set"):
        load_config(BronzeConfig, None, sets)


def test_outputs_that_would_take_each_other_for_written_are_refused():
    both = ["bootstrap_servers=b:1", "topics=[t]", "checkpoint=c", "delivery=exactly_once"]
    with pytest.raises(JobError, match="o/bars is named for two outputs: give each a directory of its own"):
        load_config(GoldConfig, None, [*both, "output=o/bars", "late_output=o/bars/"])
    with pytest.raises(JobError, match="letters is named for two outputs: with exactly_once each needs a topic"):
        load_config(SilverConfig, None, [*both, "output_topic=letters", "dead_letter_topic=letters"])
    load_config(SilverConfig, None, [*both, "output_topic=x", "dead_letter_topic=x", "delivery=at_least_once"])


@pytest.mark.parametrize(
    ("named", "told"),
    [
        (["checkpoint=c", "output=./c"], "/c is named for two outputs"),
        (["checkpoint=c", "output=o", "delta=file://{here}/o"], "/o is named for two outputs"),
        (["checkpoint=c", "output=o", "archive=o"], "--reset-output would remove .*/o with .*/o"),
        (["checkpoint=c", "output=o", "archive=o/archive"], "--reset-output would remove .*/o/archive with .*/o:"),
        (["checkpoint=c", "output=o", "stream_checkpoint=c/"], "--reset-output would remove .*/c with .*/c:"),
        (["checkpoint=c", "delta=t", "output=o", "iceberg=t"], "--reset-output would remove .*/t with .*/t:"),
        (["checkpoint=s3a://b/c", "delta=s3a://b", "output=o", "iceberg=s3a://b/t"], "remove s3a://b/t with s3a://b:"),
    ],
)
def test_what_a_reset_removes_is_of_this_job_alone(named, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sets = ["bootstrap_servers=b:1", "topics=[t]", *(one.format(here=tmp_path) for one in named)]
    with pytest.raises(JobError, match=told):
        load_config(GoldBackfill, None, sets)


@pytest.mark.parametrize("more", ["output=t/o", "output=c/o", "output=o-2", "late_output=oo"])
def test_other_directories_may_be_beside_or_in_each_other(more):
    sets = ["bootstrap_servers=b:1", "topics=[t]", "checkpoint=c", "output=o", "iceberg=t", "delta=t/delta_bars"]
    load_config(GoldBackfill, None, [*sets, "archive=o-archive", "stream_checkpoint=c-0", more])


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (GoldConfig, ["topics=[t]", "output_topic=t"]),
        (SilverConfig, ["topics=[x,t]", "dead_letter_topic=t"]),
        (QuotesConfig, ["topics=[t]", "dead_letter_topic=t"]),
        (FillsConfig, ["topics=[x]", "seconds_topics=[t]", "output_topic=t"]),
    ],
)
def test_a_job_that_would_read_what_it_writes_is_refused(model, named):
    with pytest.raises(JobError, match="topic t is read and written by this job: name another one"):
        load_config(model, None, ["bootstrap_servers=b:1", "checkpoint=c", *named])


@pytest.mark.parametrize("client", ["kafka", "producer"])
def test_the_brokers_are_named_in_one_place(client):
    sets = ["bootstrap_servers=b:1", "topics=[t]", "checkpoint=c", f"{client}.bootstrap.servers=other:1"]
    with pytest.raises(JobError, match=f"{client}: bootstrap.servers is said by the key bootstrap_servers alone"):
        load_config(GoldConfig, None, sets)


@pytest.mark.parametrize("target", ["{name}-replay", "{", "{topic", "{0}", "{topic.x}"])
def test_a_target_that_names_no_topic_is_refused(target):
    given = {"bootstrap_servers": "b:1", "archive": "a"}
    with pytest.raises(ValueError, match=r"target\n.*\{topic\} alone can stand in braces"):
        ReplayConfig(**given, target=target)
    assert ReplayConfig(**given, target="{topic}-{topic}").target == "{topic}-{topic}"


@pytest.mark.parametrize(("trades", "letters"), [("a", "a-0"), ("a-3", "a")])
def test_topics_that_would_share_a_transactional_id_are_refused_by_name(trades, letters):
    settings = ["bootstrap_servers=b:1", "topics=[t]", "checkpoint=c", f"output_topic={trades}"]
    settings += [f"dead_letter_topic={letters}"]
    load_config(SilverConfig, None, settings)
    shared = max(trades, letters)
    with pytest.raises(JobError, match=f"^configuration: topics a and {shared} would share the transactional id"):
        load_config(SilverConfig, None, [*settings, "delivery=exactly_once"])


@pytest.mark.parametrize("other", ["a-4", "a-04", "a-x", "a0", "a-0-b", "0"])
def test_other_numbers_share_none(other):
    settings = ["bootstrap_servers=b:1", "topics=[t]", "checkpoint=c", "output_topic=a", "delivery=exactly_once"]
    load_config(SilverConfig, None, [*settings, f"dead_letter_topic='{other}'"])


def test_a_missing_file(tmp_path):
    with pytest.raises(JobError, match="cannot be read"):
        load_config(BronzeConfig, tmp_path / "none.yaml")


def test_help_shows_every_key():
    keys = {key: (default, text) for key, _, default, text in describe(GoldConfig)}
    assert keys["bootstrap_servers"][0] == "required"
    assert keys["watermark"][0] == "10 seconds"
    assert all(text for _, text in keys.values())
    assert "market.seed" in {key for key, *_ in describe(FeedConfig)}


@pytest.mark.parametrize(("text", "ms"), [("1 second", 1_000), ("90 minutes", 5_400_000), ("0 seconds", 0)])
def test_durations(text, ms):
    assert duration_ms(text) == ms
