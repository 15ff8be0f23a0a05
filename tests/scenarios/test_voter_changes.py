"""AddRaftVoter and RemoveRaftVoter at a quorum of one: what is refused, in the words of Apache Kafka (KIP-853)."""

from typing import Any

import pytest

from harness.servers import free_port
from kafkapy.protocol.messages.add_raft_voter_request import AddRaftVoterRequest, Listener
from kafkapy.protocol.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from kafkapy.types import ReplicaKey
from tests.support.client_requests import local_voter
from tests.support.wire import WireClient

OTHER = b"d" * 16
INVALID_REQUEST, TIMED_OUT, INCONSISTENT_CLUSTER_ID, DUPLICATE_VOTER, VOTER_NOT_FOUND = 42, 7, 104, 126, 127


def added(client: WireClient, **fields: Any) -> tuple[int, str]:
    defaults = {
        "cluster_id": None,
        "timeout_ms": 5000,
        "voter_id": 2,
        "voter_directory_id": OTHER,
        "listeners": [Listener("CONTROLLER", host="127.0.0.1", port=free_port())],
    }
    response = client.call(AddRaftVoterRequest(**{**defaults, **fields}), 1)  # type: ignore[arg-type]
    return response.error_code, response.error_message


def removed(client: WireClient, **fields: Any) -> tuple[int, str]:
    defaults = {"cluster_id": None, "voter_id": 2, "voter_directory_id": OTHER}
    response = client.call(RemoveRaftVoterRequest(**{**defaults, **fields}), 0)  # type: ignore[arg-type]
    return response.error_code, response.error_message


@pytest.mark.parametrize(("change", "name"), [(added, "Add"), (removed, "Remove")])
def test_a_change_has_to_name_this_cluster_and_a_voter(client: WireClient, change: Any, name: str) -> None:
    code, message = change(client, cluster_id="foo")

    assert code == INCONSISTENT_CLUSTER_ID
    assert message.startswith('The given id "foo" doesn\'t match the cluster id "')
    invalid = (INVALID_REQUEST, f"{name} voter request didn't include a valid voter")
    assert change(client, voter_id=-1) == change(client, voter_directory_id=bytes(16)) == invalid


@pytest.mark.parametrize(
    ("listeners", "reported"),
    [([], ""), ([Listener("OTHER", host="127.0.0.1", port=1)], "ListenerName(OTHER)=127.0.0.1/<unresolved>:1")],
)
def test_a_voter_has_to_listen_for_controllers(client: WireClient, listeners: list[Listener], reported: str) -> None:
    assert added(client, listeners=listeners) == (
        INVALID_REQUEST,
        f"Add voter request didn't include the endpoint (Endpoints(endpoints={{{reported}}})) for the default listener "
        "ListenerName(CONTROLLER)",
    )


@pytest.mark.parametrize("is_itself", [True, False])
def test_a_voter_is_not_added_twice(client: WireClient, is_itself: bool) -> None:
    local = local_voter(client)
    key = local if is_itself else ReplicaKey(local.node_id, OTHER)

    assert added(client, voter_id=key.node_id, voter_directory_id=key.directory_id) == (
        DUPLICATE_VOTER,
        f"The voter id for {key} is already part of the set of voters [{local}].",
    )


def test_a_voter_that_does_not_answer_is_not_added(client: WireClient) -> None:
    assert added(client) == (
        TIMED_OUT,
        "Aborted add voter operation for since API_VERSIONS returned an error BROKER_NOT_AVAILABLE",
    )


def test_neither_strangers_nor_the_last_voter_are_removed(client: WireClient) -> None:
    local = local_voter(client)
    for key in (ReplicaKey(2, OTHER), ReplicaKey(local.node_id, OTHER), local):
        assert removed(client, voter_id=key.node_id, voter_directory_id=key.directory_id) == (
            VOTER_NOT_FOUND,
            f"Cannot remove voter {key} from the set of voters [{local}]",
        )
