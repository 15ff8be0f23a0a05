"""What members of a KIP-848 group subscribe to: topics that come and go, regular expressions."""

from kafkapy.protocol.error_code import ErrorCode
from tests.support.consumer_groups import (
    FakeConsumer,
    GroupWorld,
    error_of,
    image_of,
    image_with,
    names_of,
    reconcile,
    topic_id,
)


def test_topic_that_comes_is_noticed() -> None:
    world = GroupWorld(image_of(foo=2))
    consumer = FakeConsumer(world, "a", "foo", "bar")
    consumer.join()

    world.image = image_of(2, foo=3, bar=1)
    consumer.beat()

    assert consumer.partitions() == [("bar", 0), ("foo", 0), ("foo", 1), ("foo", 2)]


def test_topic_that_goes_is_taken_from_its_members() -> None:
    world = GroupWorld(image_of(foo=2, bar=1))
    consumer = FakeConsumer(world, "a", "foo", "bar")
    consumer.join()

    world.image = image_of(2, foo=2)
    reconcile(consumer)

    assert consumer.partitions() == [("foo", 0), ("foo", 1)]
    assert world.group().log.members["a"].assigned.keys() == {topic_id("foo")}


def test_topic_made_anew_is_another_topic() -> None:
    world = GroupWorld(image_of(foo=2))
    consumer = FakeConsumer(world, "a", "foo")
    consumer.join()

    new_id = b"n" * 16
    world.image = image_with({"foo": (new_id, 1)}, 2)
    reconcile(consumer)

    assert consumer.owned == {new_id: {0}}


def test_other_topics_leave_the_group_alone() -> None:
    world = GroupWorld(image_of(foo=2))
    consumer = FakeConsumer(world, "a", "foo")
    consumer.join()
    consumer.beat()

    world.image = image_of(2, foo=2, bar=5)
    consumer.beat()

    assert world.written == []


def test_member_that_subscribes_to_less_gives_the_rest_up() -> None:
    world = GroupWorld(image_of(foo=1, bar=1))
    consumer = FakeConsumer(world, "a", "foo", "bar")
    consumer.join()

    consumer.beat(subscribed_topic_names=["foo"])
    consumer.beat()

    assert consumer.partitions() == [("foo", 0)]
    assert world.group().state_name == "Stable"


def test_expression_subscribes_to_what_matches_and_to_what_comes_to_match() -> None:
    world = GroupWorld(image_of(foo=1, bar=1))
    consumer = FakeConsumer(world, "a", subscribed_topic_names=None, subscribed_topic_regex="foo.*")

    consumer.join()
    assert consumer.partitions() == []
    consumer.beat()
    assert consumer.partitions() == [("foo", 0)]
    world.image = image_of(2, foo=1, bar=1, food=2)
    world.pass_time(10_001)
    consumer.beat()
    consumer.beat()

    assert consumer.partitions() == [("foo", 0), ("food", 0), ("food", 1)]
    assert world.group().log.subscriptions.resolved["foo.*"].version == 2


def test_topics_by_name_are_assigned_before_those_that_an_expression_matches() -> None:
    world = GroupWorld(image_of(foo=1, bar=1))
    consumer = FakeConsumer(world, "a", subscribed_topic_names=["bar"], subscribed_topic_regex="foo.*")

    consumer.join()
    assert (consumer.epoch, consumer.partitions()) == (2, [("bar", 0)])
    consumer.beat()

    assert (consumer.epoch, consumer.partitions()) == (3, [("bar", 0), ("foo", 0)])


def test_an_expression_that_changes_takes_what_it_no_longer_matches_at_once() -> None:
    world = GroupWorld(image_of(foo=1, bar=1))
    consumer = FakeConsumer(world, "a", subscribed_topic_names=None, subscribed_topic_regex="foo")
    reconcile(consumer)

    consumer.beat(subscribed_topic_regex="bar")
    assert consumer.partitions() == []
    reconcile(consumer)

    assert consumer.partitions() == [("bar", 0)]


def test_expressions_are_not_matched_again_at_every_new_topic() -> None:
    world = GroupWorld(image_of(foo=1))
    consumer = FakeConsumer(world, "a", subscribed_topic_names=None, subscribed_topic_regex="foo.*")
    consumer.join()
    consumer.beat()

    world.image = image_of(2, foo=1, food=1)
    world.pass_time(5_000)
    consumer.beat()

    assert world.written == []


def test_what_an_expression_matched_that_has_changed_meanwhile_is_not_written() -> None:
    world = GroupWorld(image_of(foo=1, bar=1))
    consumer = FakeConsumer(world, "a", subscribed_topic_names=None, subscribed_topic_regex="foo")
    consumer.join()
    matched = dict(world.group().log.subscriptions.resolved)
    consumer.beat(subscribed_topic_regex="bar")

    assert world.consumer.resolve_regexes("g", matched).records == []
    assert world.group().log.subscriptions.resolved.keys() == {"bar"}


def test_expression_that_nobody_has_any_more_is_forgotten() -> None:
    world = GroupWorld(image_of(foo=1, bar=1))
    first = FakeConsumer(world, "a", subscribed_topic_names=None, subscribed_topic_regex="foo")
    second = FakeConsumer(world, "b", subscribed_topic_names=None, subscribed_topic_regex="bar")
    first.join()
    second.join()

    first.beat(subscribed_topic_regex="bar")
    assert "-RegularExpression" in names_of(world.written)
    reconcile(first, second)
    assert world.group().log.subscriptions.resolved.keys() == {"bar"}
    second.leave()
    assert "-RegularExpression" not in names_of(world.written)
    first.leave()

    assert "-RegularExpression" in names_of(world.written)
    assert world.group().log.subscriptions.topics() == set()


def test_invalid_expression_leaves_the_group_untouched() -> None:
    world = GroupWorld(image_of(foo=1))
    consumer = FakeConsumer(world, "a", subscribed_topic_names=None, subscribed_topic_regex="(foo")

    assert error_of(consumer.join)[0] == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert world.groups == {}
