"""Client quotas of a broker that serves many tests: they are removed when a file's tests are done."""

from kafkapy.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from kafkapy.protocol.messages.describe_client_quotas_request import DescribeClientQuotasRequest
from tests.support.client_requests import until
from tests.support.wire import WireClient


def remove_quotas(bootstrap_servers: str) -> None:
    """Remove all quotas: while there are some, Produce requests go another way."""
    with WireClient(bootstrap_servers) as client:
        found = client.call(DescribeClientQuotasRequest(components=[]), 1).entries
        entries = [
            EntryData(
                [EntityData(part.entity_type, entity_name=part.entity_name) for part in each.entity],
                ops=[OpData(value.key, remove=True) for value in each.values],
            )
            for each in found
        ]
        client.call(AlterClientQuotasRequest(entries), 1)
        until(lambda: not client.call(DescribeClientQuotasRequest(components=[]), 1).entries)


def set_quotas(client: WireClient, *client_ids: str, **quotas: float) -> None:
    """Give each of these client-ids the same quotas, at one time."""
    ops = [OpData(key, value=value) for key, value in quotas.items()]
    entries = [EntryData([EntityData("client-id", entity_name=each)], ops=ops) for each in client_ids]
    found = client.call(AlterClientQuotasRequest(entries), 1).entries
    assert [each.error_code for each in found] == [0] * len(client_ids)
