"""A test for each vulnerability that Apache Kafka, its clients or its codecs have had, named by its CVE.

What is shown is that this broker does not have it; where the feature is missing here, that it is refused. Longer tests
of the same subjects are named in the docstrings. What concerns memory: test_known_vulnerabilities_memory.py.
"""

import base64
import hmac
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kafkapy import Broker
from kafkapy.config.embedded import embedded_properties
from kafkapy.config.load import load
from kafkapy.errors import ConfigError
from kafkapy.metadata.acl_types import AclOperation, PatternType, PermissionType, ResourceType
from kafkapy.metadata.scram_types import MECHANISMS, MIN_ITERATIONS, keys_of, salted_password
from kafkapy.protocol.api import APIS
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkapy.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkapy.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from kafkapy.record.compression import ZSTD, compress
from kafkapy.security.jwt_validator import JwtValidator, parse_jwks
from kafkapy.security.oauthbearer import JwtError
from kafkapy.security.plain import PlainServer
from kafkapy.security.sasl import SaslError
from kafkapy.security.scram import ScramCredential, ScramServer
from kafkapy.server.login.jwks import read
from tests.support.authorization_script import acl, request
from tests.support.bearer_tokens import WALL_MS, SigningKey, jwks
from tests.support.client_requests import (
    LATEST,
    batch_of,
    create_topic,
    fetch,
    fetch_request,
    list_offset,
    produce,
    produce_request,
    until,
    values_in,
)
from tests.support.logins import MODULES, log_in, sasl_broker, sasl_client, shake_hands
from tests.support.offsets import find_coordinator
from tests.support.wire import ConnectionClosed, WireClient

LISTENER = "SASL_PLAINTEXT"
USERS = {"admin": "admin-secret", "alice": "alice-secret", "bob": "bob-secret"}
PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
    "message.max.bytes": "2000000",
}
INVALID_REQUEST = ErrorCode.INVALID_REQUEST
SET = 0
BROKER, TOPIC = 4, 2
Connect = Callable[[str], WireClient]


@pytest.fixture(scope="module")
def ports(provided: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    with sasl_broker(tmp_path_factory.mktemp("cves"), (LISTENER,), USERS, PROPERTIES) as ports:
        yield ports


@pytest.fixture
def connect(ports: dict[str, int]) -> Iterator[Connect]:
    """Connect as a user; as "" without logging in."""
    with ExitStack() as stack:

        def connected(user: str) -> WireClient:
            client = stack.enter_context(WireClient(f"127.0.0.1:{ports[LISTENER]}"))
            if user:
                assert log_in(client, sasl_client("PLAIN", user, USERS[user])).error_code == 0
            return client

        yield connected


@pytest.fixture
def admin(connect: Connect) -> WireClient:
    return connect("admin")


def allow(admin: WireClient, user: str, kind: ResourceType, name: str, operation: AclOperation, **how: Any) -> None:
    (result,) = admin.call(
        request("CreateAcls", {"creations": [binding(user, kind, name, operation, **how)]}), 3
    ).results
    assert result.error_code == 0, result


def binding(
    user: str, kind: ResourceType, name: str, operation: AclOperation, permission: int = PermissionType.ALLOW
) -> dict[str, Any]:
    return acl(kind, name, "*", permission, user=user, operation=operation)


def alter(client: WireClient, resource: AlterConfigsResource) -> int:
    (result,) = client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    return int(result.error_code)


# -- logins ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [b"bob\0alice\0alice-secret", b"admin\0alice\0alice-secret"])
def test_cve_2017_12610_nobody_becomes_another_by_an_authorization_id(connect: Connect, token: bytes) -> None:
    client = connect("")
    shake_hands(client, "PLAIN")
    response = client.call(SaslAuthenticateRequest(auth_bytes=token), 2)
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.is_closed()


def test_cve_2017_12610_by_scram_neither(connect: Connect) -> None:
    client = connect("")
    shake_hands(client, "SCRAM-SHA-512")
    response = client.call(SaslAuthenticateRequest(auth_bytes=b"n,a=admin,n=alice,r=nonce"), 2)
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.is_closed()


def scram_exchange(final_nonce: str) -> bytes:
    """Log in to a ScramServer; `final_nonce` stands for the nonce of the client's last message. RFC 5802, 5.1."""
    scram = MECHANISMS["SCRAM-SHA-256"]
    salted = salted_password(scram, "pencil", b"salt", MIN_ITERATIONS)
    keys = keys_of(scram, salted)
    credential = ScramCredential(b"salt", keys.stored_key, keys.server_key, MIN_ITERATIONS)
    server = ScramServer(scram, {"user": credential}.get, nonce="server", secret=b"secret")
    first = server.evaluate(b"n,,n=user,r=client", WALL_MS).decode()
    unproved = f"c=biws,r={final_nonce}"
    signed = f"n=user,r=client,{first},{unproved}".encode()
    signature = hmac.digest(keys.stored_key, signed, "sha256")
    proof = bytes(a ^ b for a, b in zip(hmac.digest(salted, b"Client Key", "sha256"), signature, strict=True))
    return server.evaluate(f"{unproved},p={base64.b64encode(proof).decode()}".encode(), WALL_MS)


@pytest.mark.parametrize("nonce", ["client", "server", "clientserve", "clientservers", "clientSERVER", "x"])
def test_cve_2024_56128_scrams_last_nonce_is_compared(nonce: str) -> None:
    """The proof is right: only the nonce is not that of the exchange."""
    assert scram_exchange("clientserver").startswith(b"v=")
    with pytest.raises(SaslError, match="Invalid client nonce in the final client message"):
        scram_exchange(nonce)


def test_cve_2021_38153_secrets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Any] = []
    compare = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append(a) or compare(a, b))
    server = PlainServer({"alice": "alice-secret"})
    with pytest.raises(SaslError):
        server.evaluate(b"\0alice\0alice-secreT", WALL_MS)
    assert len(compared) == 1
    scram_exchange("clientserver")
    assert len(compared) == 3, "channel binding with nonce, stored key"


def validator(key: SigningKey) -> JwtValidator:
    keys = parse_jwks(jwks(key))
    return JwtValidator(
        lambda key_id, now_ms: keys,
        issuer="us",
        audiences=("kafka",),
        clock_skew_seconds=30,
        scope_claim="scope",
        name_claim="sub",
    )


def unsigned(algorithm: str, key: bytes = b"") -> str:
    """Return a token with alg none, or signed by HMAC with `key`, which may be public."""
    claims = b'{"sub":"alice","iss":"us","aud":"kafka","iat":1800000000,"exp":1800000060}'
    header = b'{"alg":"%s","kid":"one"}' % algorithm.encode()
    body = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in (header, claims))
    signature = hmac.digest(key, body, "sha256") if key else b""
    return (body + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


def test_cve_2026_33557_tokens_that_are_unsigned_or_signed_with_a_public_key_are_refused() -> None:
    """More negatives: tests/unit/security/test_oauthbearer.py."""
    key = SigningKey("one", "RS256")
    check = validator(key)
    assert check(key.token(), WALL_MS)().name == "alice"
    public = jwks(key)
    for token in (unsigned("none"), unsigned("NONE"), unsigned("HS256", public), SigningKey("one", "RS256").token()):
        with pytest.raises(JwtError):
            check(token, WALL_MS)()
    s = WALL_MS // 1000
    for claims in ({"iss": "them"}, {"aud": "web"}, {"exp": s - 60}, {"nbf": s + 60}, {"without": "exp"}, {"sub": ""}):
        with pytest.raises(JwtError):
            check(key.token(**claims), WALL_MS)()


@pytest.mark.ours
def test_cve_2026_110985_without_a_jwks_url_there_are_no_bearer_tokens() -> None:
    config = {
        "listeners": f"{LISTENER}://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
            f'{MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="alice";'
        ),
    }
    with pytest.raises(ConfigError, match=r"jwks\.endpoint\.url"), Broker(properties=config):
        pass


# -- classes, files, URLs -------------------------------------------------------------------------------------------

LOGIN_MODULES = (
    'com.sun.security.auth.module.JndiLoginModule required user.provider.url="ldap://127.0.0.1:1/x";',
    'com.sun.security.auth.module.LdapLoginModule required userProvider="ldap://127.0.0.1:1/x";',
    "os.system required;",
)


@pytest.mark.ours
@pytest.mark.parametrize("module", LOGIN_MODULES)
@pytest.mark.parametrize("mechanism", ["plain", "scram-sha-256", "scram-sha-512"])
def test_cve_2023_25194_2025_27818_2025_27819_a_login_module_is_a_name_in_a_table(
    admin: WireClient, mechanism: str, module: str
) -> None:
    """Apache Kafka takes such a change, and refuses JndiLoginModule and LdapLoginModule when it comes to load them."""
    key = f"listener.name.sasl_plaintext.{mechanism}.sasl.jaas.config"
    assert (
        alter(
            admin,
            AlterConfigsResource(
                BROKER, resource_name="1", configs=[AlterableConfig(key, config_operation=SET, value=module)]
            ),
        )
        == INVALID_REQUEST
    )


@pytest.mark.parametrize(
    "key",
    [
        "authorizer.class.name",
        "principal.builder.class",
        "sasl.server.callback.handler.class",
        "listener.name.sasl_plaintext.principal.builder.class",
        "listener.name.sasl_plaintext.plain.sasl.server.callback.handler.class",
        "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.token.endpoint.url",
        pytest.param("listener.name.sasl_plaintext.sasl.oauthbearer.jwks.endpoint.url", marks=pytest.mark.ours),
        pytest.param(
            "listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer.jwks.endpoint.url", marks=pytest.mark.ours
        ),
        pytest.param("listener.name.sasl_plaintext.sasl.oauthbearer.token.endpoint.url", marks=pytest.mark.ours),
        pytest.param("listener.name.sasl_plaintext.kafkapy.sasl.oauthbearer.allowed.urls", marks=pytest.mark.ours),
        pytest.param("kafkapy.sasl.oauthbearer.allowed.urls", marks=pytest.mark.ours),
        pytest.param("kafkapy.sasl.allowed.login.modules", marks=pytest.mark.ours),
    ],
)
def test_cve_2025_27817_a_client_sets_no_class_and_no_url(admin: WireClient, key: str) -> None:
    value = "http://127.0.0.1:1/latest/meta-data"
    assert (
        alter(
            admin,
            AlterConfigsResource(
                BROKER, resource_name="1", configs=[AlterableConfig(key, config_operation=SET, value=value)]
            ),
        )
        == INVALID_REQUEST
    )


@pytest.mark.ours
@pytest.mark.parametrize("prefix", ["", "listener.name.sasl_plaintext.", "listener.name.sasl_plaintext.oauthbearer."])
def test_cve_2026_33557_a_client_cannot_allow_unsigned_tokens(admin: WireClient, prefix: str) -> None:
    key = f"{prefix}kafkapy.sasl.oauthbearer.unsecured.enable"
    assert (
        alter(
            admin,
            AlterConfigsResource(
                BROKER, resource_name="1", configs=[AlterableConfig(key, config_operation=SET, value="true")]
            ),
        )
        == INVALID_REQUEST
    )
    assert (
        alter(
            admin,
            AlterConfigsResource(
                BROKER, resource_name="", configs=[AlterableConfig(key, config_operation=SET, value="true")]
            ),
        )
        == INVALID_REQUEST
    )


@pytest.mark.ours
@pytest.mark.parametrize("url", ["file:///etc/passwd", "https://127.0.0.1:1/keys", "http://127.0.0.1:1/keys"])
def test_cve_2025_27817_no_url_is_read_that_is_not_allowed_by_name(url: str) -> None:
    config = {
        "listeners": f"{LISTENER}://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
            f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;"
        ),
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.allow.unverified.audience": "true",
        "sasl.oauthbearer.allow.unverified.issuer": "true",
    }
    with pytest.raises(ConfigError, match="not allowed"), Broker(properties=config):
        pass
    if not url.startswith("https"):
        with pytest.raises((JwtError, OSError)):
            read(url) and parse_jwks(read(url))


@pytest.mark.parametrize(
    "variable", ["${file:%s/all.properties:number}", "${env:KAFKAPY_NUMBER}", "${directory:%s:number}"]
)
def test_cve_2024_31141_no_file_and_no_environment_is_read_for_a_client(
    admin: WireClient, provided: Path, variable: str
) -> None:
    """There are no config providers: their variables would stand for 1000000, a valid value of all these keys."""
    value = variable.replace("%s", str(provided))
    name = f"providers-{variable[2:5]}"
    create_topic(admin, name)
    for key in ("retention.ms", "max.message.bytes"):
        resource = AlterConfigsResource(
            TOPIC, resource_name=name, configs=[AlterableConfig(key, config_operation=SET, value=value)]
        )
        assert alter(admin, resource) == ErrorCode.INVALID_CONFIG
    with pytest.raises(ConfigError):
        load({**embedded_properties("/nowhere", overrides={}), "config.providers": "file", "num.partitions": value})


@pytest.fixture(scope="module")
def provided(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory whose file `number` says 1000000, as does the environment of the broker."""
    directory = tmp_path_factory.mktemp("provided")
    (directory / "number").write_text("1000000")
    (directory / "all.properties").write_text("number=1000000\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KAFKAPY_NUMBER", "1000000")
        yield directory


def test_cve_2019_12399_no_secret_is_described(admin: WireClient) -> None:
    password = "listener.name.sasl_plaintext.ssl.keystore.password"
    assert (
        alter(
            admin,
            AlterConfigsResource(
                BROKER,
                resource_name="1",
                configs=[AlterableConfig(password, config_operation=SET, value="keystore-secret")],
            ),
        )
        == 0
    )
    resource = DescribeConfigsResource(BROKER, resource_name="1", configuration_keys=None)
    (described,) = admin.call(
        DescribeConfigsRequest([resource], include_synonyms=True, include_documentation=True), 4
    ).results
    shown = {each.name: each for each in described.configs}
    assert shown[password].is_sensitive
    for each in described.configs:
        for value in (each.value, *(synonym.value for synonym in each.synonyms)):
            assert not any(secret in (value or "") for secret in ("keystore-secret", *USERS.values())), each.name
    assert {each.value for each in described.configs if each.name.endswith("jaas.config")} <= {None}


@pytest.mark.ours
def test_cve_2026_33558_no_log_shows_what_requests_carry(
    connect: Connect, admin: WireClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Of SaslAuthenticate, SCRAM, token and config requests; at every level, with the request log.

    More of each: test_secrets.py.
    """
    caplog.set_level(1)
    caplog.set_level(logging.DEBUG, "kafka.request.logger")
    client = connect("")
    assert log_in(client, sasl_client("PLAIN", "alice", "a-wrong-secret")).error_code
    password = "listener.name.sasl_plaintext.ssl.key.password"
    alter(
        admin,
        AlterConfigsResource(
            BROKER, resource_name="1", configs=[AlterableConfig(password, config_operation=SET, value="config-secret")]
        ),
    )
    assert "Completed request" in caplog.text
    assert not any(secret in caplog.text for secret in ("a-wrong-secret", "config-secret", *USERS.values()))


# -- rights ---------------------------------------------------------------------------------------------------------


def test_cve_2018_1288_a_fetch_that_names_a_replica_needs_the_clusters_right(
    admin: WireClient, connect: Connect
) -> None:
    """Each version says so in its own field; alice may read, and is no broker."""
    create_topic(admin, "replicated")
    produce(admin, "replicated", batch_of(1, value=b"v"))
    allow(admin, "alice", ResourceType.TOPIC, "replicated", AclOperation.ALL)
    alice = connect("alice")
    until(lambda: values_in(fetch(alice, "replicated")) == [b"v"])
    (response,) = alice.call(fetch_request("replicated", replica_id=1), 12).responses[0].partitions
    assert response.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not response.records


BETWEEN_BROKERS = {
    "WriteTxnMarkers": (1, {"markers": [{"producer_id": 1, "topics": [{"name": "a", "partition_indexes": [0]}]}]}),
    "AddPartitionsToTxn": (5, {"transactions": []}),
    "DescribeQuorum": (2, {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}),
    "UnregisterBroker": (0, {"broker_id": 1}),
    "UnregisterController": (0, {"controller_id": 1}),
}


@pytest.mark.parametrize("api", BETWEEN_BROKERS)
def test_cve_2018_1288_what_brokers_send_each_other_needs_the_clusters_right(connect: Connect, api: str) -> None:
    """What the broker's own listener serves of it; a table of all APIs: test_authorization_table.py."""
    version, fields = BETWEEN_BROKERS[api]
    response = connect("alice").call(request(api, fields), version)
    code = response.markers[0].topics[0].partitions[0].error_code if api == "WriteTxnMarkers" else response.error_code
    assert code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


OF_CONTROLLERS = ("Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "FetchSnapshot", "BrokerHeartbeat", "AlterPartition")


def test_cve_2018_1288_clients_reach_no_api_of_the_controller(connect: Connect) -> None:
    for api in OF_CONTROLLERS:
        client = connect("alice")
        client.send(request(api, {}), APIS_BY_NAME[api].max_version)
        with pytest.raises(ConnectionClosed):
            client.receive()


APIS_BY_NAME = {api.request_name.removesuffix("Request"): api for api in APIS.values()}


def test_cve_2018_17196_the_batch_says_that_it_is_transactional(admin: WireClient, connect: Connect) -> None:
    """Nothing of such a request is written, neither the batch nor its neighbours'."""
    for name in ("first", "second"):
        create_topic(admin, name)
        allow(admin, "alice", ResourceType.TOPIC, name, AclOperation.WRITE)
    batch = batch_of(producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    alice = connect("alice")
    until(lambda: produce(alice, "first", batch_of()).error_code == 0)
    both = produce_request("first", batch_of())
    both.topic_data += produce_request("second", batch).topic_data
    responses = [part for topic in alice.call(both, 12).responses for part in topic.partition_responses]
    assert {each.error_code for each in responses} == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    assert list_offset(admin, "first", LATEST).offset == 1
    assert list_offset(admin, "second", LATEST).offset == 0


def test_cve_2024_27309_removing_one_acl_leaves_the_others_of_its_resource(admin: WireClient, connect: Connect) -> None:
    """In general, after any changes and snapshots: tests/property/test_acls.py."""
    create_topic(admin, "guarded")
    allow(admin, "alice", ResourceType.TOPIC, "guarded", AclOperation.ALL)
    allow(admin, "bob", ResourceType.TOPIC, "guarded", AclOperation.ALL)
    allow(admin, "alice", ResourceType.TOPIC, "guarded", AclOperation.READ, permission=PermissionType.DENY)
    alice, bob = connect("alice"), connect("bob")
    until(lambda: fetch(alice, "guarded").error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    until(lambda: fetch(bob, "guarded").error_code == 0)
    removed = {
        "resource_type_filter": ResourceType.TOPIC,
        "resource_name_filter": "guarded",
        "pattern_type_filter": PatternType.LITERAL,
        "principal_filter": "User:bob",
        "host_filter": None,
        "operation": AclOperation.ANY,
        "permission_type": PermissionType.ANY,
    }
    (result,) = admin.call(request("DeleteAcls", {"filters": [removed]}), 3).filter_results
    assert len(result.matching_acls) == 1
    until(lambda: fetch(bob, "guarded").error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert fetch(alice, "guarded").error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED, "the denial is still there"
    assert produce(alice, "guarded", batch_of()).error_code == 0, "and what alice may do"


def test_cve_2026_41115_consumer_groups_are_described_with_describe_on_the_group(
    admin: WireClient, connect: Connect
) -> None:
    """Not with READ on it, which implies DESCRIBE, nor with any right to its topics alone."""
    allow(admin, "alice", ResourceType.TOPIC, "anything", AclOperation.DESCRIBE)
    allow(admin, "bob", ResourceType.GROUP, "described", AclOperation.DESCRIBE)

    def code(client: WireClient) -> int:
        return int(client.call(request("ConsumerGroupDescribe", {"group_ids": ["described"]}), 1).groups[0].error_code)

    bob = connect("bob")
    find_coordinator(admin, "described")
    until(lambda: code(bob) == ErrorCode.GROUP_ID_NOT_FOUND)
    assert code(connect("alice")) == ErrorCode.GROUP_AUTHORIZATION_FAILED


# -- features that are missing here, and clients --------------------------------------------------------------------


@pytest.mark.ours
def test_cve_2026_111073_without_a_receiver_telemetry_is_refused_and_so_its_bombs(connect: Connect) -> None:
    """It lists no such API, and closes on one. With a receiver: test_client_telemetry.py."""
    client = connect("alice")
    listed = {each.api_key for each in client.call(ApiVersionsRequest("a", client_software_version="b"), 4).api_keys}
    for api in ("GetTelemetrySubscriptions", "PushTelemetry"):
        assert APIS_BY_NAME[api].key not in listed
    bomb = bytes(compress(ZSTD, bytes(64 << 20)))
    client.send(request("PushTelemetry", {"compression_type": ZSTD, "metrics": bomb}), 0)
    assert client.is_closed()


@pytest.mark.ours
def test_cve_2026_83525_a_fetch_snapshot_without_topics_does_not_end_the_controller(ports: dict[str, int]) -> None:
    for _ in range(2):
        with WireClient(f"127.0.0.1:{ports['CONTROLLER']}") as client:
            response = client.call(request("FetchSnapshot", {"topics": []}), 1)
            assert response.topics == []
            assert client.call(ApiVersionsRequest("a", client_software_version="b"), 4).error_code == 0
