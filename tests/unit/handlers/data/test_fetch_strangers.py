"""Who claims to be a replica without the right to the cluster takes nothing from others, either."""

import itertools
import logging

import pytest

from kafkapy.handlers.data import fetch
from kafkapy.handlers.table import BROKER_APIS
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import RequestHeader
from kafkapy.protocol.messages.fetch_request import ReplicaState
from kafkapy.protocol.serving import ConnectionInfo
from kafkapy.replication.fetch_session import FetchSessionCache
from kafkapy.security.authorizer import AclOperation
from kafkapy.security.quotas import ClientQuotas
from kafkapy.serving.quotas import Meter
from tests.simulator.loop import SimLoop
from tests.support.hosting import Hosting
from tests.support.metadata_services import Deny
from tests.unit.handlers.data.test_fetch import context, request, send

STRANGER = {"replica_state": ReplicaState(replica_id=2, replica_epoch=1), "session_epoch": 0}


def crowded(loop: SimLoop) -> Hosting:
    """A broker with room for one session."""
    hosting = Hosting(loop, broker_count=2)
    hosting.create_topic(replicas=(1, 2))
    hosting.sessions = FetchSessionCache(1, itertools.count(1).__next__)
    return hosting


async def test_a_stranger_does_not_drive_out_the_sessions_of_consumers(loop: SimLoop) -> None:
    hosting = crowded(loop)
    session_id = (await send(hosting, request(18, 0, session_epoch=0))).session_id
    denied = Deny((AclOperation.CLUSTER_ACTION, "kafka-cluster"))
    refused = await send(hosting, request(18, 0, **STRANGER), authorizer=denied)
    assert refused.responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert refused.session_id == 0
    assert denied.questions == [("CLUSTER_ACTION", "CLUSTER", "kafka-cluster", 1, True, True)]
    assert (await send(hosting, request(18, session_id=session_id, session_epoch=1))).error_code == 0


async def test_a_follower_does(loop: SimLoop) -> None:
    hosting = crowded(loop)
    session_id = (await send(hosting, request(18, 0, session_epoch=0))).session_id
    assert (await send(hosting, request(18, 0, **STRANGER))).session_id == session_id + 1
    response = await send(hosting, request(18, session_id=session_id, session_epoch=1))
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize(("denied", "throttle_ms"), [((AclOperation.CLUSTER_ACTION, "kafka-cluster"), 1000), ((), 0)])
async def test_a_stranger_has_quotas_and_a_follower_has_none(
    loop: SimLoop, denied: tuple[AclOperation, str], throttle_ms: int
) -> None:
    hosting = crowded(loop)
    running = hosting.services(Deny(denied) if denied else Deny())
    running.apis, running.client_quotas = BROKER_APIS, ClientQuotas(11, 1000)
    running.client_quotas.set_entity((("client-id", "tester"),), {"request_percentage": 0.0001})
    peer = ConnectionInfo("10.0.0.1:9092-10.0.0.3:4000-0", "PLAINTEXT", "PLAINTEXT", "10.0.0.3", 4000)
    meter = Meter(running, RequestHeader(1, 18, 1, "tester"), peer, frame_bytes=100)
    response = await fetch.handle(running, meter.new_context(), request(18, 0, **STRANGER))
    meter.timed(lambda: loop.block(40))()
    assert meter.charge(response).throttle_time_ms == peer.throttle_ms == throttle_ms


@pytest.mark.parametrize(
    ("replica", "leader_epoch", "code", "reason"),
    [
        (
            ReplicaState(replica_id=77, replica_epoch=-1),
            -1,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.BROKER_ID_NOT_REGISTERED,
        ),
        (
            ReplicaState(replica_id=77, replica_epoch=-1),
            0,
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            ErrorCode.BROKER_ID_NOT_REGISTERED,
        ),
        (
            ReplicaState(replica_id=2, replica_epoch=0),
            0,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.STALE_BROKER_EPOCH,
        ),
    ],
)
async def test_who_is_not_the_replica_that_it_names_is_refused_and_logged_once_with_its_address(
    loop: SimLoop,
    caplog: pytest.LogCaptureFixture,
    replica: ReplicaState,
    leader_epoch: int,
    code: ErrorCode,
    reason: ErrorCode,
) -> None:
    caplog.set_level(logging.INFO)
    hosting = Hosting(loop, broker_count=2)
    hosting.create_topic(replicas=(1, 2))
    services = hosting.services()
    for port in (4000, 4001):
        peer = ConnectionInfo(f"10.0.0.1:9092-10.0.0.3:{port}-0", "PLAINTEXT", "PLAINTEXT", "10.0.0.3", port)
        response = await fetch.handle(
            services, context(18, peer), request(18, 0, replica_state=replica, current_leader_epoch=leader_epoch)
        )
        assert response.responses[0].partitions[0].error_code == code
    assert [record.message for record in caplog.records if "Refused" in record.message] == [
        f"Refused Fetch of 10.0.0.1:9092-10.0.0.3:4000-0: {reason.name}"
    ]


async def test_a_follower_is_not_logged(loop: SimLoop, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    hosting = crowded(loop)
    replica = ReplicaState(replica_id=2, replica_epoch=hosting.cluster.epochs[2])
    response = await send(hosting, request(18, 0, replica_state=replica))
    assert response.responses[0].partitions[0].error_code == 0
    assert not [record for record in caplog.records if "Refused" in record.message]
