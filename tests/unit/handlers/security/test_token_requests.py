"""Requests about delegation tokens: from whom they are taken, on a connection and passed on by a broker."""

from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.handlers.context import RequestContext
from kafkapy.handlers.security import create_delegation_token, expire_delegation_token, renew_delegation_token
from kafkapy.handlers.security.token_requests import check_connection
from kafkapy.handlers.table import CONTROLLER_APIS
from kafkapy.metadata.delegation_tokens import DelegationTokenControl, TokenRules
from kafkapy.metadata.features import FeatureControl
from kafkapy.metadata.image import METADATA_VERSION, FeaturesImage, MetadataImage
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import RequestHeader
from kafkapy.protocol.messages.create_delegation_token_request import CreatableRenewers, CreateDelegationTokenRequest
from kafkapy.protocol.messages.envelope_request import EnvelopeRequest
from kafkapy.protocol.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from kafkapy.protocol.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from kafkapy.protocol.serving import ConnectionInfo
from kafkapy.runtime.decoded_requests import DecodedRequests
from kafkapy.runtime.turns import Turns
from kafkapy.security.authorizer import AllowAll
from kafkapy.serving import envelope
from tests.simulator.loop import SimLoop
from tests.support.chance import SeededRandom

NOW_MS = 1_000_000
ALICE = "User:alice"
ANONYMOUS = "User:ANONYMOUS"


def connection(protocol: str, principal: str = ALICE, **output: bool) -> ConnectionInfo:
    return ConnectionInfo("id", protocol, protocol, "10.0.0.7", 1, principal=principal, **output)


def context(info: ConnectionInfo, request: type, version: int) -> RequestContext:
    return RequestContext(RequestHeader(request.API_KEY, version, 1, "app"), info)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("info", "is_taken"),
    [
        (connection("SASL_PLAINTEXT"), True),
        (connection("SASL_SSL"), True),
        (connection("SSL", "User:CN=alice"), True),
        (connection("SSL", ANONYMOUS), False),
        (connection("PLAINTEXT", ANONYMOUS), False),
        (connection("SASL_SSL", is_by_token=True), False),
        (connection("PLAINTEXT", is_forwarded=True), True),
        (connection("PLAINTEXT", is_forwarded=True, is_by_token=True), False),
    ],
    ids=str,
)
def test_a_client_has_proved_who_it_is_and_not_by_a_token(info, is_taken) -> None:
    requested = context(info, RenewDelegationTokenRequest, 2)
    if is_taken:
        check_connection(requested)
    else:
        with pytest.raises(ApiError) as error:
            check_connection(requested)
        assert error.value.code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


class ControllerNode:
    """A controller's listener on PLAINTEXT, and the broker's way to it."""

    is_local = False

    def __init__(self) -> None:
        features = FeatureControl()
        features.load(MetadataImage(features=FeaturesImage({METADATA_VERSION: 30})))
        self.table = DelegationTokenControl(features, SeededRandom(), TokenRules(b"secret", 10_000, 1_000), {})
        self.services: Any = SimpleNamespace(
            authorizer=AllowAll(),
            controller=SimpleNamespace(is_active=True),
            active_controller=SimpleNamespace(is_local=True),
            metadata_changes=self,
            clock=SimpleNamespace(wall_ms=lambda: NOW_MS),
            apis=CONTROLLER_APIS,
            io_pool=None,
            turns=Turns(),
            client_quotas=None,
        )

    async def change(self, decide: Any, *, timeout_ms: int = 0) -> Any:
        decision = decide(SimpleNamespace(tokens=self.table), 0)
        for record in decision.records:
            is_token = type(record).__name__ == "DelegationTokenRecord"
            (self.table.replay if is_token else self.table.replay_remove)(record)
        return decision.response

    async def call(self, request: EnvelopeRequest) -> Any:
        """As ActiveController does."""
        broker = connection("PLAINTEXT", ANONYMOUS)
        return await envelope.handle(self.services, context(broker, EnvelopeRequest, 0), request)


def broker_services(node: ControllerNode) -> Any:
    config = SimpleNamespace(
        node=SimpleNamespace(request_timeout_ms=30_000), network=SimpleNamespace(socket_request_max_bytes=1 << 20)
    )
    return SimpleNamespace(authorizer=AllowAll(), active_controller=node, config=config, decoded=DecodedRequests())


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_a_broker_passes_them_on_in_the_clients_name(loop: SimLoop, version) -> None:
    node = ControllerNode()
    services, info = broker_services(node), connection("SASL_PLAINTEXT")
    create = CreateDelegationTokenRequest(
        renewers=[CreatableRenewers("User", principal_name="bob")], max_lifetime_ms=-1
    )
    token = await create_delegation_token.handle(services, context(info, type(create), version), create)
    assert (token.error_code, token.principal_name, len(token.hmac)) == (0, "alice", 64)
    assert token.token_requester_principal_name == ("alice" if version >= 3 else "")
    (record,) = node.table.by_id.values()
    assert (record.owner, record.requester, record.renewers) == (ALICE, ALICE, ["User:bob"])
    renew = RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=500)
    renewed = await renew_delegation_token.handle(services, context(info, type(renew), 2), renew)
    assert (renewed.error_code, renewed.expiry_timestamp_ms) == (0, NOW_MS + 500)
    expire = ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1)
    expired = await expire_delegation_token.handle(services, context(info, type(expire), 2), expire)
    assert (expired.error_code, expired.expiry_timestamp_ms) == (0, NOW_MS)
    gone = await expire_delegation_token.handle(services, context(info, type(expire), 2), expire)
    assert (gone.error_code, gone.expiry_timestamp_ms) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0)
