"""early.start.listeners: which controller listeners serve before the ACLs are loaded, and whom they answer then."""

import asyncio
from typing import Any

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_quorum_request import DescribeQuorumRequest
from tests.sim.test_controller_alone import ALONE, ControllerMachine
from tests.simulator.loop import SimLoop, run

AUTHORIZED = {**ALONE, "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
WITHOUT_QUORUM = {
    "controller_quorum_voters": "1@127.0.0.1:9092,2@127.0.0.1:9094",
    "controller_quorum_bootstrap_servers": "",
}


def send_request(**properties: str) -> Any:
    """Start a controller, ask it to describe the quorum; return the error code, and what /readyz says of listeners.

    None if there is no response in a minute.
    """
    found: list[Any] = []

    async def main(loop: SimLoop) -> None:
        machine = ControllerMachine(loop, **properties)
        await machine.boot()
        missing = machine.controller.node.conditions["listeners"]()
        try:
            call = machine.connect().call(DescribeQuorumRequest(), 2)
            response = await asyncio.wait_for(call, 60)
            found.append((response.error_code, missing))
        except TimeoutError:
            found.append((None, missing))
        await machine.stop()

    run(main)
    return found[0]


@pytest.mark.parametrize("listeners", [{}, {"early_start_listeners": "CONTROLLER"}])
def test_an_early_listener_answers_only_super_users_before_the_acls_are_loaded(listeners: dict[str, str]) -> None:
    without_acls = {**AUTHORIZED, **WITHOUT_QUORUM, **listeners}
    assert send_request(**without_acls) == (ErrorCode.UNKNOWN_SERVER_ERROR, None)
    assert send_request(**without_acls, super_users="User:ANONYMOUS") == (ErrorCode.NONE, None)


def test_another_listener_serves_nobody_before_the_acls_are_loaded() -> None:
    missing = "not in early.start.listeners, so waiting for the ACLs: CONTROLLER"
    early = {"early_start_listeners": "", "super_users": "User:ANONYMOUS"}
    assert send_request(**AUTHORIZED, **WITHOUT_QUORUM, **early) == (None, missing)


def test_it_serves_once_they_are_loaded() -> None:
    assert send_request(**AUTHORIZED, early_start_listeners="") == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
    assert send_request(**AUTHORIZED, early_start_listeners="", super_users="User:ANONYMOUS") == (ErrorCode.NONE, None)


def test_without_an_authorizer_every_listener_serves_at_once() -> None:
    assert send_request(**ALONE, **WITHOUT_QUORUM, early_start_listeners="") == (ErrorCode.NONE, None)
