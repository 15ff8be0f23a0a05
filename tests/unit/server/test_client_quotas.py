"""The quotas of the metadata reach those who enforce them, in steps."""

from types import SimpleNamespace
from typing import Any

from kafkapy.metadata.image import QuotaEntity
from kafkapy.server.client_quotas import PER_STEP, apply_quotas
from tests.support.controllers import Cluster
from tests.support.metadata_services import services

RATE = {"producer_byte_rate": 10.0}


def image(*client_ids: str) -> Any:
    return SimpleNamespace(client_quotas={entity(each): RATE for each in client_ids})


def entity(client_id: str) -> QuotaEntity:
    return (("client-id", client_id),)


def new_services() -> Any:
    found = services(Cluster())
    found.client_quotas = None
    return found


def test_many_entities_take_many_steps() -> None:
    running = new_services()
    many = image(*(f"c{number}" for number in range(10 * PER_STEP)))
    assert len(list(apply_quotas([running], many, many.client_quotas))) == 10
    assert running.client_quotas.has_quota("User:u", "c499")


def test_broker_and_controller_of_a_node_have_one_account() -> None:
    broker, controller = new_services(), new_services()
    list(apply_quotas([broker, controller], image("c"), [entity("c")]))
    assert broker.client_quotas is controller.client_quotas is not None


def test_without_quotas_there_is_no_meter() -> None:
    running = new_services()
    list(apply_quotas([running], image("c"), [entity("c")]))
    list(apply_quotas([running], image(), [entity("c")]))
    assert running.client_quotas is None
