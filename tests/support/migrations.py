"""What is played to both brokers: each script is one group and its way between the two protocols."""

from tests.support.membership import wait_for_state
from tests.support.migration_script import Play, Script, assignment, subscription

LEAVES, LEAVES_FOR_A_WHILE = -1, -2


def up_and_down(play: Play) -> None:
    """One classic member; a modern one joins, another classic one; the modern one leaves."""
    first = play.join("a").member_id
    play.join("a", first)
    play.sync("a", first, 1, {first: assignment(0, 1, 2, topic=play.group)})
    play.look()
    play.beat("c", 0)
    play.look()
    play.heartbeat("a", first, 1)
    play.sync("a", first, 1)
    play.commit(first, 1)
    play.commit(first, 2)
    play.fetch_offset(first, 1)
    play.fetch_offset(first, 2)
    play.fetch_offset("stranger", 2)
    play.join("a", first, 0, 1, 2)
    play.sync("a", first, 1)
    play.heartbeat("a", first, 1)
    play.beat("c", 2)
    play.join("a", first, 0, 1)
    play.sync("a", first, 2)
    play.heartbeat("a", first, 2)
    play.beat("c", 2)
    play.look()
    play.join("b", "b")
    play.heartbeat("b", "b", 3)
    play.heartbeat("a", first, 2)
    play.join("a", first, 0, 1)
    play.sync("a", first, 2)
    play.heartbeat("b", "b", 3)
    play.join("a", first, 0)
    play.heartbeat("b", "b", 3)
    play.join("b", "b")
    play.sync("b", "b", 3)
    play.sync("a", first, 3)
    play.beat("c", 2, 2)
    play.look()
    play.commit("b", 3)
    play.commit("c", 3, version=8)
    play.commit("c", 2)
    play.commit("c", 4)
    play.beat("c", LEAVES)
    play.look()
    play.heartbeat("a", first, 3)
    play.heartbeat("b", "b", 3)
    play.beat("c", 3)
    play.beat("c", LEAVES)
    play.log()


def refusals(play: Play) -> None:
    """What members of the classic protocol may not do in a group of the other."""
    play.beat("c", 0)
    play.join("a")
    play.join("a", "", version=3)
    play.join("x", "x", protocol_type="connect")
    play.join("x", "x", protocols={})
    play.join("b", "b", protocols={"roundrobin": subscription(topic=play.group)})
    play.join("x", "x", protocols={"range": b""})
    play.join("x", "x", protocols={"range": b"\0\1\0\0"})
    play.join("x", "x", session_timeout_ms=1)
    play.join("x", "", instance_id="i", protocols={"range": subscription(topic=play.group)})
    play.sync("x", "stranger", 1)
    play.sync("x", "c", 2)
    play.sync("x", "b", 99)
    play.sync("x", "b", 2, protocol_type="connect")
    play.sync("x", "b", 2, protocol_name="sticky")
    play.heartbeat("x", "stranger", 1)
    play.heartbeat("x", "c", 2)
    play.heartbeat("x", "b", 99)
    play.heartbeat("x", "b", 99, "i")
    play.leave("x", ("stranger", None), ("", "nobody"), ("stranger", "i"), ("", "i"))
    play.leave("x", ("b", None), ("b", None))
    play.beat("c", 1)
    play.beat("c", LEAVES)
    play.look()
    play.log()


def static_members(play: Play) -> None:
    """An instance changes its protocol, both ways; nobody else is there."""
    play.beat("c", 0, instance_id="i")
    play.beat("d", 0, instance_id="i")
    joined = play.join("a", "", instance_id="i")
    play.look()
    play.sync("a", joined.member_id, joined.generation_id, group_instance_id="i")
    play.heartbeat("a", joined.member_id, joined.generation_id, "i")
    play.beat("c", 2, instance_id="i")
    play.beat("e", 0, instance_id="i")
    play.look()
    play.heartbeat("a", joined.member_id, joined.generation_id, "i")
    play.sync("a", joined.member_id, joined.generation_id, group_instance_id="i")
    play.beat("e", LEAVES_FOR_A_WHILE, instance_id="i")
    play.look()
    again = play.join("b", "", instance_id="i")
    play.sync("b", again.member_id, again.generation_id, group_instance_id="i")
    play.leave("b", ("", "i"))
    play.look()
    play.log()


def static_members_among_others(play: Play) -> None:
    """An instance changes its protocol while another member stays in the group."""
    play.beat("c", 0)
    play.beat("d", 0, instance_id="i")
    joined = play.join("a", "", instance_id="i")
    play.heartbeat("a", joined.member_id, joined.generation_id, "i")
    play.beat("c", 2)
    play.beat("c", 2, 0, 1)
    play.join("a", joined.member_id, instance_id="i")
    play.look()
    play.join("x", "other", instance_id="i")
    play.heartbeat("x", "other", 3, "i")
    play.beat("e", 0, instance_id="i")
    play.look()
    play.beat("e", LEAVES, instance_id="i")
    play.log()


def two_members(play: Play) -> tuple[str, str]:
    """Bring two classic members into their second generation, and both to an assignment; return their ids."""
    first = play.join("a").member_id
    play.join("a", first)
    play.sync("a", first, 1, {first: assignment(0, 1, 2, topic=play.group)})
    second = play.join("b").member_id
    play.send_join("b", second)
    wait_for_state(play.client, play.group, "PreparingRebalance")
    play.join("a", first)
    play.receive_join("b")
    play.sync("a", first, 2, {first: assignment(0, topic=play.group), second: assignment(1, 2, topic=play.group)})
    return first, second


def while_members_join(play: Play) -> None:
    """A modern member comes while a JoinGroup waits."""
    first, second = two_members(play)
    play.send_join("a", first)
    wait_for_state(play.client, play.group, "PreparingRebalance")
    play.beat("c", 0)
    play.receive_join("a")
    play.look()
    play.join("b", second)
    play.leave("b", (second, None))
    play.leave("a", (first, None))
    play.beat("c", LEAVES)
    play.look()
    play.log()


def while_members_sync(play: Play) -> None:
    """A modern member comes while a SyncGroup waits for the leader's."""
    first, second = two_members(play)
    play.send_join("a", first)
    wait_for_state(play.client, play.group, "PreparingRebalance")
    play.join("b", second)
    play.receive_join("a")
    play.send_sync("b", second, 3)
    play.beat("c", 0)
    play.receive_sync("b")
    play.look()
    play.log()


def empty_groups(play: Play) -> None:
    """Empty groups change their kind when somebody joins; their offsets stay."""
    play.commit("", -1)
    play.beat("c", 0)
    play.beat("c", LEAVES)
    play.look()
    first = play.join("a").member_id
    play.look()
    play.join("a", first)
    play.leave("a", (first, None))
    play.look()
    play.beat("c", 0)
    play.fetch_offset(None, -1)
    play.look()
    play.log()


def refused_upgrades(play: Play) -> None:
    """Groups that cannot be converted say why, and stay what they are."""
    first = play.join("a").member_id
    play.join("a", first)
    play.sync("a", first, 1, {first: assignment(0, user_data=b"mine", topic=play.group)})
    play.beat("c", 0)
    play.join("a", first)
    play.sync("a", first, 2, {first: b"\0\1\0\0"})
    play.beat("c", 0)
    play.beat("c", 3)
    play.look()
    play.log()


def another_protocol_type(play: Play) -> None:
    """A group of Kafka Connect is none of consumers."""
    first = play.join("a", protocol_type="connect").member_id
    play.join("a", first, protocol_type="connect")
    play.beat("c", 0)
    play.look()
    play.log()


SCRIPTS: dict[str, Script] = {
    script.__name__: script
    for script in (
        up_and_down,
        refusals,
        static_members,
        static_members_among_others,
        while_members_join,
        while_members_sync,
        empty_groups,
        refused_upgrades,
        another_protocol_type,
    )
}
