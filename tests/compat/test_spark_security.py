"""A job and the feed over SASL_SSL: the security options of the configuration reach every client that they start.

The certificate is made here; PLAIN's passwords are the broker's own configuration, SCRAM's are put in with them.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from harness.certificates import make_certificate
from harness.servers import Server, free_port
from spark_jobs import audit, bronze, feed, replay, silver
from spark_jobs.errors import JobError
from spark_jobs.generator import Market
from tests.compat.conftest import new_server
from tests.support.copying import only_soaked
from tests.support.scram_users import add_user
from tests.support.security_page import SNIPPETS, SecureNode

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
MODULES = "org.apache.kafka.common.security"
LOGINS = {
    "PLAIN": f"{MODULES}.plain.PlainLoginModule required",
    "SCRAM-SHA-256": f"{MODULES}.scram.ScramLoginModule required",
    "SCRAM-SHA-512": f"{MODULES}.scram.ScramLoginModule required",
}
PASSWORD = "s3cret=, ;"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MARKET = Market(events=300)


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """A broker whose only listener for clients wants TLS and a password, and its certificate."""
    directory = tmp_path_factory.mktemp("secured")
    keys, certificate = make_certificate(directory)
    port, controller_port = free_port(), free_port()
    properties = {
        "listeners": f"SASL_SSL://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": ",".join(LOGINS),
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            f'{LOGINS["PLAIN"]} username="broker" password="b" user_broker="b" user_spark="{PASSWORD}";'
        ),
        **{f"listener.name.sasl_ssl.{name.lower()}.sasl.jaas.config": f"{LOGINS[name]};" for name in SCRAM},
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate),
    }
    server = new_server(directory / "data", properties)
    server.port = port
    server.speaks_tls = True
    with server:
        add_user(server.bootstrap, "spark", PASSWORD, settings=librdkafka_options(certificate))
        yield server, certificate


def java_options(certificate: Path, mechanism: str = "PLAIN", password: str = PASSWORD) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{LOGINS[mechanism]} username="spark" password="{password}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate),
    }


def librdkafka_options(certificate: Path, mechanism: str = "PLAIN") -> dict[str, str]:
    options = {"security.protocol": "sasl_ssl", "sasl.mechanism": mechanism, "ssl.ca.location": str(certificate)}
    return {**options, "sasl.username": "spark", "sasl.password": PASSWORD}


def options(server: Server, directory: Path, **more: Any) -> dict[str, Any]:
    common = {"bootstrap_servers": server.bootstrap, "shuffle_partitions": 2, "trigger": "available_now"}
    places = {"checkpoint": str(directory / "checkpoint"), "output": str(directory / "output")}
    return {**common, **places, **more}


@pytest.mark.parametrize("mechanism", LOGINS if os.environ.get("KAFKAPY_SOAK_SEEDS") else ["SCRAM-SHA-512"])
def test_feed_jobs_and_replay_work_over_tls_with_a_password(spark, secured, tmp_path, mechanism) -> None:
    server, certificate = secured
    topic = f"trades-{mechanism}"
    stock, java = librdkafka_options(certificate, mechanism), java_options(certificate, mechanism)
    source = {"trades_topic": topic, "market": MARKET, "quiet": True}
    sent = feed.run(feed.FeedConfig(bootstrap_servers=server.bootstrap, kafka=stock, **source))
    own = {"topics": [topic], "kafka": java}
    silver.run(silver.SilverConfig(**options(server, tmp_path / "silver", **own, output_topic=f"silver-{mechanism}")))
    assert spark.read.parquet(str(tmp_path / "silver" / "output")).count() == MARKET.events
    archived = options(server, tmp_path / "bronze", **own)
    bronze.run(bronze.BronzeConfig(**archived))
    audit.run(audit.AuditConfig(**archived))
    again = {"bootstrap_servers": server.bootstrap, "archive": archived["output"], "shuffle_partitions": 2}
    assert replay.replay(spark, replay.ReplayConfig(**again, kafka=java, producer=stock)) == sent


@pytest.mark.parametrize(
    ("mechanism", "reported"),
    [
        ("PLAIN", "Invalid username or password"),
        ("SCRAM-SHA-512", "invalid credentials with SASL mechanism SCRAM-SHA-512"),
    ],
)
def test_a_wrong_password_is_reported_in_one_line(spark, secured, tmp_path, mechanism, reported) -> None:
    server, certificate = secured
    java = java_options(certificate, mechanism, "wrong")
    with pytest.raises(JobError, match=rf"127.0.0.1:\d+.*SaslAuthenticationException.*{reported}") as error:
        bronze.run(bronze.BronzeConfig(**options(server, tmp_path, topics=["trades"], kafka=java)))
    assert "\n" not in str(error.value)


@only_soaked  # Spark's consumer waits for a minute
def test_plain_text_to_a_secured_broker_is_reported_in_one_line(spark, secured, tmp_path) -> None:
    server, _ = secured
    with pytest.raises(JobError, match=r"no broker answers at .* security"):
        bronze.run(bronze.BronzeConfig(**options(server, tmp_path, topics=["trades"])))
    with pytest.raises(JobError, match=f"no broker answers at {server.bootstrap} "):
        feed.run(feed.FeedConfig(bootstrap_servers=server.bootstrap, market=MARKET, quiet=True))


@pytest.mark.ours
def test_the_snippet_of_the_security_page_runs(spark, tmp_path, capsys) -> None:
    """The other clients' are in test_security_page.py."""
    node = SecureNode(tmp_path)
    text = node.of_this_node(SNIPPETS["Spark"][1]).replace("secure/ca.pem", str(tmp_path / "secure/ca.pem"))
    with node.running():
        exec(text, {"spark": spark})
    assert capsys.readouterr().out == "0\n"
