"""Who claims to be a replica without the right to the cluster takes nothing from others, either."""

import itertools

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.fetch_request import ReplicaState
from kafkapy.replication.fetch_session import FetchSessionCache
from kafkapy.security.authorizer import AclOperation
from tests.simulator.loop import SimLoop
from tests.support.hosting import Hosting
from tests.support.metadata_services import Deny
from tests.unit.handlers.test_fetch import request, send

STRANGER = {"replica_state": ReplicaState(2, 1), "session_epoch": 0}


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
    answer = await send(hosting, request(18, session_id=session_id, session_epoch=1))
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
