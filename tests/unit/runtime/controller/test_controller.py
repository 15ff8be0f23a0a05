"""MetadataRuntime over a quorum in memory, in virtual time."""

import asyncio
import errno
from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.machine import Decision
from kafkapy.metadata import record_serde
from kafkapy.metadata.bootstrap import default_bootstrap_records
from kafkapy.metadata.record_serde import encode_record
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.begin_transaction_record import BeginTransactionRecord
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkapy.protocol.messages.feature_level_record import FeatureLevelRecord
from kafkapy.protocol.messages.remove_topic_record import RemoveTopicRecord
from kafkapy.protocol.messages.unregister_broker_record import UnregisterBrokerRecord
from kafkapy.runtime.controller.controller import MIN_COMMIT_WAIT_MS
from kafkapy.runtime.controller.term import RECORDS_PER_STEP
from tests.simulator.loop import SimLoop
from tests.support.controller_nodes import Node, kinds, on_node, unfenced


def test_first_leader_writes_the_bootstrap_records_as_apache_kafka_does() -> None:
    async def scenario(node: Node) -> None:
        node.quorum.lead()
        await asyncio.sleep(1)

        # tests/golden/kafka_data_dir_unclean: offset 0 control, 1-9 one batch
        assert [batch.last_offset for batch in node.quorum.log] == [0, 9]
        assert kinds(node)[0] == "BeginTransactionRecord"
        assert kinds(node)[-1] == "EndTransactionRecord"
        assert node.controller.image.features.metadata_version == 33
        assert node.controller.image.provenance.last_offset == 9

    on_node(scenario)


def test_second_term_writes_no_bootstrap_records() -> None:
    async def scenario(node: Node) -> None:
        node.quorum.lead()
        await asyncio.sleep(1)
        count = len(kinds(node))
        node.quorum.lose()
        node.quorum.lead()
        await asyncio.sleep(1)

        assert len(kinds(node)) == count
        assert node.controller.is_active

    on_node(scenario)


def test_write_answers_once_committed_and_the_image_has_it() -> None:
    async def scenario(node: Node) -> None:
        await node.started()
        node.quorum.commit_delay_ms = 70
        loop = asyncio.get_running_loop()
        started = loop.time()

        result = await node.create("orders")

        assert loop.time() - started == pytest.approx(0.07)
        assert node.controller.image.topics.by_name["orders"].topic_id == result.topic_id
        delta, image = node.images[-1]
        assert image is node.controller.image
        assert [change.name for change in delta.topics.changed.values()] == ["orders"]

    on_node(scenario)


def test_a_controller_that_waits_for_room_answers_nothing() -> None:
    """Another one is active by then: a heartbeat that this one answers does not reach it."""

    async def scenario(node: Node) -> None:
        await node.started()
        node.quorum.effects.waiting = ("a batch",)
        with pytest.raises(ApiError) as refused:
            await node.controller.write(lambda controller, _: Decision("nothing to write", []))
        assert refused.value.code == ErrorCode.NOT_CONTROLLER
        node.quorum.effects.waiting = ()
        assert await node.controller.write(lambda controller, _: Decision("nothing to write", [])) == "nothing to write"

    on_node(scenario)


def test_a_write_that_is_not_committed_in_time_is_answered_timed_out_and_may_still_come() -> None:
    async def scenario(node: Node) -> None:
        await node.started()
        node.quorum.commit_delay_ms = 3_000
        loop = asyncio.get_running_loop()
        started = loop.time()

        with pytest.raises(ApiError) as refused:
            await node.create("late", timeout_ms=2_000)

        assert refused.value.code == ErrorCode.REQUEST_TIMED_OUT
        assert loop.time() - started == pytest.approx(2)
        await asyncio.sleep(2)
        assert "late" in node.controller.image.topics.by_name

    on_node(scenario)


def test_a_short_time_out_leaves_time_for_a_commit() -> None:
    async def scenario(node: Node) -> None:
        await node.started()
        node.quorum.commit_delay_ms = MIN_COMMIT_WAIT_MS // 2

        assert (await node.create("orders", timeout_ms=1)).error_code == 0

    on_node(scenario)


def test_a_write_without_time_is_not_decided() -> None:
    async def scenario(node: Node) -> None:
        await node.started()
        count = len(kinds(node))

        with pytest.raises(ApiError) as refused:
            await node.create("orders", timeout_ms=0)
        await asyncio.sleep(1)

        assert refused.value.code == ErrorCode.REQUEST_TIMED_OUT
        assert len(kinds(node)) == count

    on_node(scenario)


def test_control_records_of_the_quorum_may_lie_between_decisions() -> None:
    async def scenario(node: Node) -> None:
        lifecycle = await node.started()
        await node.create("before")

        node.quorum.append_control()
        created = await node.create("after")

        assert created.error_code == 0
        assert node.controller.committed_offset == node.quorum.log_end_offset - 1
        assert sorted(node.controller.image.topics.by_name) == ["after", "before"]
        await lifecycle.close()
        assert node.failures == []

    on_node(scenario)


def test_tables_run_ahead_of_the_image() -> None:
    async def scenario(node: Node) -> None:
        await node.started()
        first, second = await asyncio.gather(node.create("orders"), node.create("orders"))

        assert first.error_code == ErrorCode.NONE
        assert second.error_code == ErrorCode.TOPIC_ALREADY_EXISTS

    on_node(scenario)


def test_response_without_records_waits_for_what_it_has_seen() -> None:
    async def scenario(node: Node) -> None:
        await node.started()
        node.quorum.commit_delay_ms = 50
        task = asyncio.ensure_future(node.create("orders"))
        await asyncio.sleep(0)
        seen = await node.controller.write(lambda controller, _: Decision(list(controller.topics.by_name)))

        assert seen == ["orders"]
        assert task.done()

    on_node(scenario)


def test_decision_that_raises_changes_nothing() -> None:
    async def scenario(node: Node) -> None:
        await node.started()
        end = node.quorum.log_end_offset

        def refuse(controller: Any, now_ms: int) -> Decision[Any, None]:
            raise ApiError(ErrorCode.POLICY_VIOLATION, "no")

        with pytest.raises(ApiError, match="no"):
            await node.controller.write(refuse)
        assert node.quorum.log_end_offset == end

    on_node(scenario)


def test_lost_leadership_fails_the_writes_under_way_and_rebuilds_from_the_image() -> None:
    async def scenario(node: Node) -> None:
        await node.started()
        await node.create("kept")
        task = asyncio.ensure_future(node.create("lost"))
        await asyncio.sleep(0)
        node.quorum.lose(leader_id=2)

        with pytest.raises(ApiError, match="The active controller appears to be node 2") as failure:
            await task
        with pytest.raises(ApiError) as refusal:
            await node.create("refused")
        node.quorum.lead()
        again = await node.create("lost")

        assert failure.value.code == refusal.value.code == ErrorCode.NOT_CONTROLLER
        assert again.error_code == ErrorCode.NONE
        assert sorted(node.controller.image.topics.by_name) == ["kept", "lost"]

    on_node(scenario)


def test_follower_takes_images_from_the_leader() -> None:
    async def scenario(node: Node) -> None:
        node.quorum.lose(leader_id=2)
        node.quorum.commit_foreign([encode_record(record, 0) for record in default_bootstrap_records()])

        assert not node.controller.is_active
        assert node.controller.image.features.metadata_version == 33

    on_node(scenario)


def test_snapshot_replaces_the_image_and_can_be_made_again() -> None:
    async def scenario(node: Node) -> None:
        await node.started()
        await node.create("orders")
        image = node.controller.image
        assert node.quorum.source is not None
        snapshot_id, _, slices = node.quorum.source()
        values = [value for part in slices for value in part]

        other = Node(asyncio.get_running_loop())  # type: ignore[arg-type]
        other.quorum.load_snapshot(values, snapshot_id.offset)

        assert snapshot_id.offset == image.provenance.last_offset + 1
        assert other.controller.image.has_same_content(image)
        other.quorum.lead()
        assert (await other.create("orders")).error_code == ErrorCode.TOPIC_ALREADY_EXISTS

    on_node(scenario)


def test_transaction_cut_off_by_a_failover_is_aborted_by_the_next_leader() -> None:
    async def scenario(node: Node) -> None:
        node.quorum.lose(leader_id=2)
        broken = [BeginTransactionRecord(name="Bootstrap records"), default_bootstrap_records()[0]]
        node.quorum.commit_foreign([encode_record(record, 0) for record in broken])
        node.quorum.lead()
        await asyncio.sleep(1)

        assert kinds(node)[2:4] == ["AbortTransactionRecord", "BeginTransactionRecord"]
        assert node.controller.image.features.metadata_version == 33

    on_node(scenario)


async def test_record_that_cannot_follow_stops_the_process(loop: SimLoop) -> None:
    node = Node(loop)
    node.quorum.lose(leader_id=2)
    node.quorum.commit_foreign([encode_record(RemoveTopicRecord(topic_id=bytes(16)), 0)])

    assert [type(failure) for failure in node.failures] == [AssertionError]


async def test_level_of_a_later_kafka_stops_the_process(loop: SimLoop) -> None:
    node = Node(loop)
    node.quorum.lead()
    await asyncio.sleep(1)
    with pytest.raises(AssertionError):
        await node.controller.write(
            lambda controller, _: Decision(None, [FeatureLevelRecord(name="metadata.version", feature_level=34)])
        )

    assert len(node.failures) == 1
    assert not node.controller.is_active


def test_large_decision_is_split_unless_it_is_atomic() -> None:
    async def scenario(node: Node) -> None:
        await node.started()
        records = [FeatureLevelRecord(name="share.version", feature_level=1) for _ in range(RECORDS_PER_STEP + 1)]
        before = len(node.quorum.log)
        await node.controller.write(lambda controller, _: Decision(None, list(records)))
        split = len(node.quorum.log) - before
        await node.controller.write(lambda controller, _: Decision(None, list(records), is_atomic=True))

        assert split == 2
        assert len(node.quorum.log) - before == 3

    on_node(scenario)


def test_idle_controller_writes_no_op_records_each_interval() -> None:
    async def scenario(node: Node) -> None:
        await node.started()
        node.controller.start()
        await asyncio.sleep(5.2)
        await node.controller.close()

        assert 8 <= kinds(node).count("NoOpRecord") <= 10
        assert not node.controller.is_active

    on_node(scenario)


def test_interval_of_zero_writes_none() -> None:
    async def scenario(node: Node) -> None:
        await node.started()
        node.controller.start()
        await asyncio.sleep(5)
        await node.controller.close()

        assert kinds(node).count("NoOpRecord") == 0

    on_node(scenario, metadata_max_idle_interval_ms="0")


def test_write_soon_returns_its_outcome() -> None:
    async def scenario(node: Node) -> None:
        await node.started()
        results: list[Any] = []
        request = CreateTopicsRequest(topics=[CreatableTopic(name="soon", num_partitions=1, replication_factor=1)])
        node.controller.write_soon(lambda controller, _: controller.topics.decide_create(request), results.append)
        await asyncio.sleep(1)
        node.quorum.lose()
        node.controller.write_soon(lambda controller, _: controller.topics.decide_create(request), results.append)
        await asyncio.sleep(1)

        assert results[0].topics[0].error_code == ErrorCode.NONE
        assert isinstance(results[1], ApiError)

    on_node(scenario)


def test_producer_id_blocks_do_not_overlap() -> None:
    async def scenario(node: Node) -> None:
        lifecycle = await node.started()

        assert await lifecycle.allocate_producer_ids() == range(1000)
        assert await lifecycle.allocate_producer_ids() == range(1000, 2000)
        await lifecycle.close()

    on_node(scenario)


def test_a_controller_that_becomes_active_late_has_not_stood_still(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(node: Node) -> None:
        node.controller.start()
        await asyncio.sleep(60)
        node.quorum.lead()
        await asyncio.sleep(30)
        await node.controller.close()

    on_node(scenario)
    assert not [record.message for record in caplog.records if "was blocked" in record.message]


def no_descriptor(name: str) -> Any:
    raise OSError(errno.EMFILE, f"Too many open files: {name}")


def test_without_descriptors_a_record_of_a_new_type_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections may take the last descriptor, and then nothing can be imported."""
    monkeypatch.setattr(record_serde, "_types", {})

    async def scenario(node: Node) -> None:
        node.controller.start()
        await asyncio.sleep(1.5)
        with monkeypatch.context() as patch:
            patch.setattr(record_serde, "import_module", no_descriptor)
            node.quorum.commit_foreign([encode_record(unfenced(7), 4)])
            node.quorum.commit_foreign([encode_record(UnregisterBrokerRecord(broker_id=7, broker_epoch=107), 0)])
        await node.controller.close()

        assert [7 in image.cluster.brokers for _, image in node.images] == [True, False]

    on_node(scenario)


def test_record_types_that_cannot_be_imported_yet_are_imported_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(record_serde, "_types", {})

    async def scenario(node: Node) -> None:
        node.controller.start()
        with monkeypatch.context() as patch:
            patch.setattr(record_serde, "import_module", no_descriptor)
            await asyncio.sleep(2.5)
        await asyncio.sleep(1)
        with monkeypatch.context() as patch:
            patch.setattr(record_serde, "import_module", no_descriptor)
            node.quorum.commit_foreign([encode_record(unfenced(7), 4)])
        await node.controller.close()

        assert len(node.images) == 1

    on_node(scenario)
    assert len(caplog.records) == 2
