from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.handlers.transactions import init_producer_id
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest
from kafkapy.security.authorizer import AclOperation
from tests.support.metadata_services import Deny, context, on_wire, response_of


class Ids:
    """Producer ids from 1000 on, or a refusal."""

    def __init__(self, error: int = 0) -> None:
        self._error = error
        self._next = 1000

    async def next_id(self) -> int:
        if self._error:
            raise ApiError(self._error)
        self._next += 1
        return self._next - 1


def send_request(
    version: int = 5, *, ids: Ids | None = None, authorizer: Any = None, **fields: Any
) -> tuple[int, int, int]:
    """Return error code, producer id and epoch."""
    services: Any = SimpleNamespace(authorizer=authorizer or Deny(), producer_ids=ids or Ids())
    fields.setdefault("transactional_id", None)
    response = response_of(init_producer_id.handle(services, context(version), InitProducerIdRequest(**fields)))
    reported = on_wire(response, version)
    return reported.error_code, reported.producer_id, reported.producer_epoch


@pytest.mark.parametrize("version", range(6))
def test_every_version_gets_an_id_of_its_own(version: int) -> None:
    ids = Ids()
    assert send_request(version, ids=ids) == (0, 1000, 0)
    assert send_request(version, ids=ids) == (0, 1001, 0)


def test_an_idempotent_producer_that_names_its_old_id_gets_a_new_one() -> None:
    assert send_request(producer_id=7, producer_epoch=3) == (0, 1000, 0)


@pytest.mark.parametrize(("producer_id", "producer_epoch"), [(7, -1), (-1, 3)])
def test_id_and_epoch_come_together_or_not_at_all(producer_id: int, producer_epoch: int) -> None:
    reported = send_request(producer_id=producer_id, producer_epoch=producer_epoch)
    assert reported == (ErrorCode.INVALID_REQUEST, -1, -1)


def test_rights() -> None:
    denied = Deny((AclOperation.WRITE, ""), (AclOperation.IDEMPOTENT_WRITE, "kafka-cluster"))
    assert send_request(authorizer=denied)[0] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert send_request(authorizer=denied, transactional_id="t")[0] == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_refused_block_is_reported() -> None:
    assert send_request(ids=Ids(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
