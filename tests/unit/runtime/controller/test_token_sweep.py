"""Delegation tokens whose time is over leave the metadata by themselves, in virtual time."""

import asyncio
from typing import Any

import pytest

from kafkapy.config.load import load
from kafkapy.machine import Decision
from kafkapy.metadata.bootstrap import default_bootstrap_records
from kafkapy.protocol.messages.delegation_token_record import DelegationTokenRecord
from kafkapy.runtime.controller.controller import MetadataRuntime
from kafkapy.runtime.controller.settings import ControllerSettings
from tests.simulator.loop import SimClock, SimLoop
from tests.support.chance import SeededRandom
from tests.support.controllers import CLUSTER_ID, SimpleRules
from tests.support.fake_quorum import FakeQuorum

MINUTE_MS = 60_000
PROPERTIES = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "delegation.token.expiry.check.interval.ms": str(MINUTE_MS),
    "delegation.token.expiry.time.ms": str(2 * MINUTE_MS),
}


def controller_of(loop: SimLoop, failures: list[BaseException], **more: str) -> MetadataRuntime:
    quorum: Any = FakeQuorum(CLUSTER_ID)
    controller = MetadataRuntime(
        quorum=quorum,
        settings=ControllerSettings(load({**PROPERTIES, **more})[0], SimpleRules(), default_bootstrap_records()),
        clock=SimClock(loop),
        random=SeededRandom(),
        on_fatal=failures.append,
    )
    quorum.lead()
    controller.start()
    return controller


async def create(controller: MetadataRuntime, loop: SimLoop, max_lifetime_ms: int = -1) -> DelegationTokenRecord:
    now_ms = SimClock(loop).wall_ms()
    created = await controller.write(
        lambda active, _: active.tokens.decide_create(
            requester="User:a", owner="User:a", renewers=(), max_lifetime_ms=max_lifetime_ms, now_ms=now_ms
        )
    )
    return created.record


async def test_a_token_is_removed_at_the_first_look_after_its_end(loop: SimLoop) -> None:
    failures: list[BaseException] = []
    controller = controller_of(loop, failures, **{"delegation.token.secret.key": "secret"})
    short = await create(controller, loop, max_lifetime_ms=MINUTE_MS // 2)
    long = await create(controller, loop)
    assert controller.image.delegation_tokens == {short.token_id: short, long.token_id: long}
    await asyncio.sleep(MINUTE_MS * 0.9 / 1000)
    assert short.token_id in controller.image.delegation_tokens
    await asyncio.sleep(MINUTE_MS * 0.2 / 1000)
    assert controller.image.delegation_tokens == {long.token_id: long}
    await asyncio.sleep(MINUTE_MS * 2 / 1000)
    assert controller.image.delegation_tokens == {}
    await controller.close()
    assert failures == []


@pytest.mark.parametrize("more", [{}, {"delegation.token.secret.key": ""}])
async def test_without_a_key_they_are_left_alone(loop: SimLoop, more) -> None:
    controller = controller_of(loop, [], **more)
    over = DelegationTokenRecord(token_id="id", owner="User:a", requester="User:a", expiration_timestamp=1)
    await controller.write(lambda _, now_ms: Decision(None, [over]))
    await asyncio.sleep(MINUTE_MS * 3 / 1000)
    assert controller.image.delegation_tokens == {"id": over}
    await controller.close()
