"""Three nodes that log in to each other by bearer tokens of an identity provider, which they renew.

Tokens are of 5 seconds, so that the nodes renew theirs, and their sessions, during the test. Clients come over
PLAINTEXT.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.nodes import ThreeNodes
from harness.servers import ApacheKafka
from tests.compat.test_cluster import KIND, PROPERTIES
from tests.compat.test_tls_cluster import check_java_in_place, create, in_sync, produce
from tests.simulator.crash_enumeration import SOAK_FACTOR
from tests.support.bearer_tokens import SigningKey
from tests.support.eventually import eventually
from tests.support.https_server import HttpsServer, allow_urls, give_keys, give_tokens, https_server
from tests.support.logins import MODULES
from tools.kafka import JAVA_LIBS

pytestmark = pytest.mark.long

OAUTH = f"{MODULES}.oauthbearer"
LIFETIME_S = 5
CLIENT, SECRET = "node", "node-secret"


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpsServer]:
    with https_server(tmp_path_factory.mktemp("provider")) as server, pytest.MonkeyPatch.context() as patch:
        key = SigningKey("one", "RS256")
        server.routes["/keys"] = give_keys(key)
        server.routes["/tokens"] = give_tokens(key, CLIENT, SECRET, lifetime_s=LIFETIME_S)
        allow_urls(patch, server.url("/keys"), server.url("/tokens"))
        yield server


def properties(provider: HttpsServer) -> dict[str, str]:
    trust = f'ssl.truststore.type="PEM" ssl.truststore.location="{provider.ca_file}"'
    module = f'{OAUTH}.OAuthBearerLoginModule required clientId="{CLIENT}" clientSecret="{SECRET}" {trust};'
    keys = {
        "oauthbearer.sasl.jaas.config": module,
        "oauthbearer.sasl.login.callback.handler.class": f"{OAUTH}.OAuthBearerLoginCallbackHandler",
        "oauthbearer.sasl.server.callback.handler.class": f"{OAUTH}.OAuthBearerValidatorCallbackHandler",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
    }
    listeners = ("brokers", "controller")
    return {
        **PROPERTIES,
        "offsets.topic.replication.factor": "3",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.mechanism.controller.protocol": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": provider.url("/tokens"),
        "sasl.oauthbearer.jwks.endpoint.url": provider.url("/keys"),
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.allow.unverified.issuer": "true",
        **{f"listener.name.{listener}.{key}": value for listener in listeners for key, value in keys.items()},
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{CLIENT};User:ANONYMOUS",
        "early.start.listeners": "CONTROLLER",
    }


def test_nodes_renew_their_tokens_and_sessions_amid_replication(provider: HttpsServer, tmp_path: Path) -> None:
    with ThreeNodes([KIND] * 3, tmp_path, properties(provider), heap="384m", more_listeners=["BROKERS"]) as cluster:
        create(cluster, "orders")
        before = provider.count("/tokens")
        while provider.count("/tokens") < before + 6:
            produce(cluster, "orders", 60)
        eventually(lambda: in_sync(cluster, "orders") == [3] * 6)
        logs = [Path(f"{node.directory}.log").read_text(errors="replace") for node in cluster.by_id.values()]
    assert not any(SECRET in log for log in logs)


@pytest.mark.skipif(SOAK_FACTOR == 1, reason="`make soak`: 50 s")
@pytest.mark.skipif(KIND is ApacheKafka, reason="Java among ours")
@pytest.mark.skipif(not JAVA_LIBS.is_dir() or shutil.which("java") is None, reason="`make tools` brings the jars")
def test_a_java_node_takes_the_place_of_one_of_ours(provider: HttpsServer, tmp_path: Path) -> None:
    """It gets its tokens at the same endpoint; ours accept them, and it accepts ours."""
    check_java_in_place(ThreeNodes([KIND] * 3, tmp_path, properties(provider), more_listeners=["BROKERS"]))
