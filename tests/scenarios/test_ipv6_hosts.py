"""A client that comes by IPv6 has the address that Java prints: in ACLs, in quotas, and among a group's members."""

import socket
from collections.abc import Iterator

import pytest

from harness.listeners import listener_keys
from harness.servers import free_port
from kafkapy import Broker
from kafkapy.metadata.acl_types import AclOperation, PermissionType, ResourceType
from tests.support.authorization_script import CLUSTER, PROPERTIES, Fields, acl, request
from tests.support.client_requests import until
from tests.support.logins import IS_APACHE
from tests.support.offsets import find_coordinator
from tests.support.quick_kafka import QuickKafka
from tests.support.wire import WireClient

LOOPBACK, PRINTED = "::1", "0:0:0:0:0:0:0:1"
CLUSTER_AUTHORIZATION_FAILED = 31


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as listener:
            listener.bind((LOOPBACK, 0))
    except OSError:
        return False
    return True


pytestmark = pytest.mark.skipif(not _has_ipv6(), reason="there is no IPv6 loopback")


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    ports = {"PLAINTEXT": free_port(), "SIX": free_port(), "CONTROLLER": free_port()}
    keys = listener_keys(ports, {"SIX": "PLAINTEXT"})
    listeners = ",".join(
        f"{name}://{'[::1]' if name == 'SIX' else '127.0.0.1'}:{number}" for name, number in ports.items()
    )
    keys |= {"listeners": listeners, "controller.quorum.bootstrap.servers": f"127.0.0.1:{ports['CONTROLLER']}"}
    if IS_APACHE:
        server = QuickKafka(tmp_path_factory.mktemp("kafka") / "data", {**PROPERTIES, **keys})
        server.port = ports["PLAINTEXT"]
        with server:
            yield ports["SIX"]
    else:
        with Broker(properties={**PROPERTIES, **keys}):
            yield ports["SIX"]


@pytest.fixture
def client(port: int) -> Iterator[WireClient]:
    with WireClient(f"{LOOPBACK}:{port}") as connected:
        yield connected


def of_the_cluster(host: str, permission: int, operation: AclOperation = AclOperation.DESCRIBE) -> Fields:
    return acl(ResourceType.CLUSTER, CLUSTER, host, permission, user="*", operation=operation)


def test_an_acl_names_the_address_as_java_prints_it(client: WireClient) -> None:
    everybody = of_the_cluster("*", PermissionType.ALLOW, AclOperation.ALL)
    short, printed = (of_the_cluster(host, PermissionType.DENY) for host in (LOOPBACK, PRINTED))
    quorum = request("DescribeQuorum", {"topics": []})
    client.call(request("CreateAcls", {"creations": [everybody, short]}), 3)
    assert client.call(quorum, 2).error_code != CLUSTER_AUTHORIZATION_FAILED
    client.call(request("CreateAcls", {"creations": [printed]}), 3)
    until(lambda: client.call(quorum, 2).error_code == CLUSTER_AUTHORIZATION_FAILED)


def test_a_member_has_the_address_as_java_prints_it(client: WireClient) -> None:
    find_coordinator(client, "group")
    joining = {
        "group_id": "group",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    until(lambda: client.call(request("JoinGroup", joining), 3).error_code == 0)
    (group,) = client.call(request("DescribeGroups", {"groups": ["group"]}), 5).groups
    assert {member.client_host for member in group.members} == {f"/{PRINTED}"}
