"""A job and the feed over SASL_SSL: the security options of the configuration reach every client that they start.

The certificate is made here, PLAIN's passwords are the broker's own configuration. Runs against Apache Kafka alone,
until kafkapy serves SASL and TLS.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks.clusters import make_certificate
from benchmarks.servers import ApacheKafka, Server, free_port
from spark_jobs import audit, bronze, feed, replay, silver
from spark_jobs.errors import JobError
from spark_jobs.generator import Market

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
    pytest.mark.skipif(
        os.environ.get("KAFKAPY_COMPAT_SERVER") != "apache", reason="kafkapy has neither SASL nor TLS yet"
    ),
]
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
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
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            f'{LOGIN} username="broker" password="b" user_broker="b" user_spark="s3cret=, ;";'
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate),
    }
    server = ApacheKafka(directory / "data", properties)
    server.port = port
    with server:
        yield server, certificate


def java_options(certificate: Path, password: str = "s3cret=, ;") -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{LOGIN} username="spark" password="{password}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate),
    }


def librdkafka_options(certificate: Path) -> dict[str, str]:
    options = {"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "ssl.ca.location": str(certificate)}
    return {**options, "sasl.username": "spark", "sasl.password": "s3cret=, ;"}


def options(server: Server, directory: Path, **more: Any) -> dict[str, Any]:
    common = {"bootstrap_servers": server.bootstrap, "shuffle_partitions": 2, "trigger": "available_now"}
    places = {"checkpoint": str(directory / "checkpoint"), "output": str(directory / "output")}
    return {**common, **places, "topics": ["trades"], **more}


def test_feed_jobs_and_replay_work_over_tls_with_a_password(spark, secured, tmp_path) -> None:
    server, certificate = secured
    stock, java = librdkafka_options(certificate), java_options(certificate)
    sent = feed.run(feed.FeedConfig(bootstrap_servers=server.bootstrap, kafka=stock, market=MARKET, quiet=True))
    silver.run(silver.SilverConfig(**options(server, tmp_path / "silver", kafka=java)))
    assert spark.read.parquet(str(tmp_path / "silver" / "output")).count() == MARKET.events
    archived = options(server, tmp_path / "bronze", kafka=java)
    bronze.run(bronze.BronzeConfig(**archived))
    audit.run(audit.AuditConfig(**archived))
    again = {"bootstrap_servers": server.bootstrap, "archive": archived["output"], "shuffle_partitions": 2}
    assert replay.replay(spark, replay.ReplayConfig(**again, kafka=java, producer=stock)) == sent


def test_a_wrong_password_and_plain_text_are_told_in_one_line(spark, secured, tmp_path) -> None:
    server, certificate = secured
    with pytest.raises(JobError, match=r"127.0.0.1:\d+.*SaslAuthenticationException.*Invalid username or password"):
        bronze.run(bronze.BronzeConfig(**options(server, tmp_path, kafka=java_options(certificate, "wrong"))))
    with pytest.raises(JobError, match=r"no broker answers at .* security"):
        bronze.run(bronze.BronzeConfig(**options(server, tmp_path)))
    with pytest.raises(JobError, match=f"no broker answers at {server.bootstrap} "):
        feed.run(feed.FeedConfig(bootstrap_servers=server.bootstrap, market=MARKET, quiet=True))
