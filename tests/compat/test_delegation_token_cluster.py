"""Delegation tokens and SCRAM users over three nodes: made at one, they log in to each other, and end everywhere."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from harness.nodes import ThreeNodes
from kafkapy.metadata.scram_types import MECHANISMS, salted_password
from kafkapy.protocol.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kafkapy.protocol.messages.create_delegation_token_request import CreateDelegationTokenRequest
from kafkapy.protocol.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from kafkapy.protocol.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from kafkapy.security.scram import ScramClient
from tests.compat.test_cluster import KIND, PROPERTIES
from tests.support.eventually import eventually
from tests.support.logins import jaas_keys, log_in, sasl_client
from tests.support.wire import WireClient

LISTENER = "CLIENTS"
ENABLED = ("PLAIN", "SCRAM-SHA-256")
NODES = (1, 2, 3)
DELEGATION_TOKEN_NOT_FOUND = 62
SHA_256 = MECHANISMS["SCRAM-SHA-256"]
UNKNOWN_SERVER_ERROR, UNSUPPORTED_SASL_MECHANISM, RESOURCE_NOT_FOUND, UNACCEPTABLE_CREDENTIAL = -1, 33, 91, 93


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, str]]:
    """Where the clients of each node log in."""
    properties = {
        **PROPERTIES,
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{LISTENER}:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(ENABLED),
        "delegation.token.secret.key": "the secret of all nodes",
        **jaas_keys(LISTENER, mechanisms=ENABLED, users={"alice": "wonder"}),
    }
    with ThreeNodes(KIND, tmp_path_factory.mktemp("tokens"), properties, heap="384m", more_listeners=[LISTENER]) as all:
        yield {number: _address(all.by_id[number].properties["listeners"]) for number in NODES}


def _address(listeners: str) -> str:
    return next(each.partition("://")[2] for each in listeners.split(",") if each.startswith(LISTENER))


@contextmanager
def alice(addresses: dict[int, str], number: int) -> Iterator[WireClient]:
    with WireClient(addresses[number]) as client:
        assert log_in(client, sasl_client("PLAIN", "alice", "wonder")).error_code == 0
        yield client


def may_log_in(address: str, token: Any) -> bool:
    password = base64.b64encode(token.hmac).decode()
    sasl = ScramClient(MECHANISMS["SCRAM-SHA-256"], token.token_id, password, nonce="abc", is_token=True)
    with WireClient(address) as client:
        return log_in(client, sasl).error_code == 0


@pytest.mark.parametrize("maker", NODES)
def test_a_token_made_at_one_node_logs_in_to_all_until_another_ends_it(addresses: dict[int, str], maker: int) -> None:
    with alice(addresses, maker) as client:
        token = client.call(CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
        assert token.error_code == 0
    for address in addresses.values():
        eventually(lambda address=address: may_log_in(address, token))
    other = maker % 3 + 1
    with alice(addresses, other) as client:
        renewed = client.call(RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=60_000), 2)
        assert renewed.error_code == 0
        assert renewed.expiry_timestamp_ms < token.expiry_timestamp_ms
        assert client.call(ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1), 2).error_code == 0
    for number, address in addresses.items():
        eventually(lambda address=address: not may_log_in(address, token))
        with alice(addresses, number) as client:
            again = client.call(RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=-1), 2)
            assert again.error_code == DELEGATION_TOKEN_NOT_FOUND


def user(name: str, mechanism: int = SHA_256.code, *, iterations: int = 4096, salted: bytes | None = None) -> Any:
    if salted is None:
        salted = salted_password(SHA_256, name, b"salt", 4096)
    return ScramCredentialUpsertion(
        name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted
    )


def user_may_log_in(address: str, name: str) -> bool:
    with WireClient(address) as client:
        return log_in(client, sasl_client("SCRAM-SHA-256", name, name)).error_code == 0


@pytest.mark.parametrize("maker", NODES)
def test_a_scram_user_made_at_one_node_logs_in_to_all_until_another_ends_it(
    addresses: dict[int, str], maker: int
) -> None:
    """Two of the three nodes are not the active controller, and forward the request."""
    name = f"user{maker}"
    deletions = [ScramCredentialDeletion("absent", mechanism=SHA_256.code)]
    upsertions = [user(name), user("none", 9), user("few", iterations=1), user("empty", salted=b"")]
    with alice(addresses, maker) as client:
        response = client.call(AlterUserScramCredentialsRequest(deletions, upsertions=upsertions), 0)
    assert {each.user: (each.error_code, each.error_message) for each in response.results} == {
        name: (0, None),
        "absent": (RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"),
        "none": (UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        "few": (UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        "empty": (UNKNOWN_SERVER_ERROR, None),
    }
    for address in addresses.values():
        eventually(lambda address=address: user_may_log_in(address, name))
    with alice(addresses, maker % 3 + 1) as client:
        deletions = [ScramCredentialDeletion(name, mechanism=SHA_256.code)]
        (result,) = client.call(AlterUserScramCredentialsRequest(deletions, upsertions=[]), 0).results
        assert (result.user, result.error_code) == (name, 0)
    for address in addresses.values():
        eventually(lambda address=address: not user_may_log_in(address, name))
