"""Error codes of responses, counted entry by entry as in Apache Kafka's errorCounts."""

from collections import Counter

import pytest

from kafkapy.metrics.errors import count_codes
from kafkapy.protocol.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from kafkapy.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from kafkapy.protocol.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from kafkapy.protocol.messages.heartbeat_response import HeartbeatResponse
from kafkapy.protocol.messages.produce_response import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from kafkapy.protocol.messages.sasl_handshake_response import SaslHandshakeResponse
from kafkapy.protocol.primitives import Message

CASES: list[tuple[Message, dict[int, int]]] = [
    (HeartbeatResponse(error_code=25), {25: 1}),
    (SaslHandshakeResponse(), {0: 1}),
    (DeleteTopicsResponse(responses=[DeletableTopicResult(error_code=code) for code in (0, 3, 3)]), {0: 1, 3: 2}),
    (
        ProduceResponse([TopicProduceResponse(partition_responses=[PartitionProduceResponse(error_code=6)] * 2)]),
        {6: 2},
    ),
    (FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(error_code=1)])]), {0: 1, 1: 1}),
    (FindCoordinatorResponse(error_code=15), {15: 1}),
    (FindCoordinatorResponse(coordinators=[Coordinator(error_code=15)]), {15: 1}),
]


@pytest.mark.parametrize(("response", "expected"), CASES, ids=[type(response).__name__ for response, _ in CASES])
def test_each_entry_with_an_error_code_counts(response: Message, expected: dict[int, int]) -> None:
    errors: Counter[int] = Counter()
    count_codes(response, errors)
    assert errors == expected
