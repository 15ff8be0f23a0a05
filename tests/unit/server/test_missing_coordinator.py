"""What a broker says if no transaction can be coordinated: clients cannot be told, they wait for their time-out."""

import pytest

from kafkapy import Broker
from kafkapy.config.embedded import embedded_properties
from kafkapy.config.load import load
from kafkapy.handlers.topics_in_creation import MAX_FAILURES, TopicsInCreation
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest
from tests.support.client_requests import create_topic, metadata, until
from tests.support.wire import WireClient

GROUP, TRANSACTION, SHARE = 0, 1, 2
FACTOR = "transaction.state.log.replication.factor"


@pytest.mark.parametrize(
    ("key_type", "topic", "key", "waiting"),
    [
        (TRANSACTION, "__transaction_state", FACTOR, "transactional producers"),
        (GROUP, "__consumer_offsets", "offsets.topic.replication.factor", "consumer groups"),
        (SHARE, "__share_group_state", "share.coordinator.state.topic.replication.factor", "share consumers"),
    ],
)
def test_too_few_brokers_for_the_coordinators_topic_are_logged_once_with_the_key(
    key_type: int, topic: str, key: str, waiting: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(properties={key: "3"}) as broker, WireClient(broker.bootstrap_servers) as client:
        for _ in range(3):
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g:AAAAAAAAAAAAAAAAAAAAAQ:0"])
            (found,) = client.call(request, 6).coordinators
            assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        create_topic(client, "others-can-be-created")
    (output,) = [each.getMessage() for each in caplog.records if "Auto topic creation" in each.getMessage()]
    assert output.startswith(
        f"Auto topic creation failed for {topic} with error INVALID_REPLICATION_FACTOR: Unable to "
    )
    assert "because only 1 broker(s) are registered" in output
    assert output.endswith(f" Until then {waiting} wait until their time-out: start more brokers, or lower {key}.")


def test_a_transactional_producer_of_a_broker_with_defaults_need_not_wait() -> None:
    with Broker() as broker, WireClient(broker.bootstrap_servers) as client:
        (found,) = client.call(FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=["x"]), 4).coordinators
        assert (found.error_code, found.node_id) == (ErrorCode.NONE, metadata(client).brokers[0].node_id)


@pytest.mark.parametrize("topic", ["transaction.state.log", "share.coordinator.state.topic"])
@pytest.mark.parametrize(("factor", "min_isr", "warns"), [("2", "3", True), ("1", "2", False), ("3", "2", False)])
def test_a_start_warns_of_more_in_sync_replicas_than_there_are_replicas(
    topic: str, factor: str, min_isr: str, warns: bool
) -> None:
    factor_key, min_isr_key = f"{topic}.replication.factor", f"{topic}.min.isr"
    _, warnings = load(embedded_properties("/data", 9092, {factor_key: factor, min_isr_key: min_isr}))
    warning = f"{min_isr_key} ({min_isr}) is more than {factor_key} ({factor})"
    assert any(text.startswith(warning) for text in warnings) is warns


def test_more_in_sync_replicas_than_there_are_count_as_all_of_them() -> None:
    properties = {FACTOR: "1", "transaction.state.log.min.isr": "2"}
    with Broker(properties=properties) as broker, WireClient(broker.bootstrap_servers) as client:
        find = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=["x"])
        until(lambda: client.call(find, 4).coordinators[0].error_code == ErrorCode.NONE)
        begin = InitProducerIdRequest("x", transaction_timeout_ms=60_000)
        until(lambda: client.call(begin, 4).error_code == ErrorCode.NONE)


def test_a_reason_is_news_again_once_it_changed_or_the_topic_was_created() -> None:
    topics = TopicsInCreation()
    assert [topics.record_failure("t", reason) for reason in ("a", "a", "b", "b")] == [True, False, True, False]
    topics.on_created("t")
    assert topics.record_failure("t", "b")
    for number in range(MAX_FAILURES):
        topics.record_failure(f"other-{number}", "a")
    assert topics.record_failure("t", "b")
    assert len(topics._failures) <= MAX_FAILURES
