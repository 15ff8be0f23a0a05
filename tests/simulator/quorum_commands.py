"""The commands of tests/texts/raft: a quorum of Raft cores whose messages and time-outs come when the text says so.

    voters 1 2 3 [observers=4]    start these nodes, with empty logs and kraft.version 1: the first command. Each asks
                         another one for a leader; that is delivered, and not shown
    timeout 1            node 1's election or fetch time-out passes, or check-quorum's of a leader
    deliver [quietly]    deliver messages in the order in which they were sent, until none is left; print them
    partition 1 | 2 3    messages between the two sides are lost from now on, those under way included
    heal                 no message is lost from now on
    lose                 lose the messages that are under way
    propose 1 x=1 ...    append a record at node 1, if it leads
    add-voter 1 4        send AddRaftVoter for node 4 to node 1; the response is delivered like other messages
    remove-voter 1 3     the same with RemoveRaftVoter
    resign 1             node 1 hands its leadership over, as a node that stops does
    stop 1, start 1      kill node 1, and start it from what is on its disk
    advance 500          milliseconds pass at all nodes, with all messages delivered as they are sent; those to
                         clients are printed
    status, log 1 2      each node's role, epoch, leader, log and vote; the records of logs

A disk is as fast as thought here: a node's fsync ends with the step that asked for it. The cluster's invariants (one
leader an epoch, no committed record lost, ...) are checked after every step, as in the simulations.
"""

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.raft import messages as m
from kafkapy.raft.effects import SendRequest
from kafkapy.raft.events import AppendRequested, RequestFailed, RequestReceived, ResponseReceived, TimePassed
from tests.simulator.raft_cluster import Cluster, ClusterOptions, Node, voter_of
from tests.support.texts import Command, options_of, table

CLIENT = 0
"""Stands for the sender of requests that no node makes by itself."""
DEADLINES = ("election_deadline_ms", "fetch_deadline_ms", "check_quorum_deadline_ms")
MAX_MESSAGES = 500
MESSAGE_WIDTH = 80
LOST, FAILED = "  LOST", "  FAILED"
"""What a line says of a message that does not arrive: it is lost, or its receiver does not run."""


class Message(NamedTuple):
    source_id: int
    target_id: int
    text: str
    arrive: Callable[[], None]
    fail: Callable[[], None] | None = None
    """Tells the sender of a request that its receiver does not run."""


class TextNode(Node):
    """A node whose disk answers at once, and whose fetches wait for as long as nothing is to be told."""

    def maybe_flush(self) -> None:
        flush = self.wanted_flush
        if flush is not None and not self.is_flushing:
            self.wanted_flush, self.is_flushing = None, True
            self.flushed(flush)


class TextCluster(Cluster):
    """A cluster whose messages wait until they are delivered."""

    def __init__(self, voter_count: int, observer_count: int) -> None:
        super().__init__(7, voter_count, observer_count, ClusterOptions(new_node=TextNode))
        self.in_flight: list[Message] = []

    def send_request(self, source: Node, effect: SendRequest) -> None:
        target = self.nodes[effect.node_id]

        def respond(response: m.Response) -> None:
            event = ResponseReceived(effect.node_id, effect.request_id, response)
            text = response_text(response)
            self._send(target.node_id, source.node_id, text, source.when_alive(lambda: source.step(event)))

        event = RequestReceived(respond, effect.request)
        text = request_text(effect.request)
        failed = RequestFailed(effect.node_id, effect.request_id)
        self._send(
            source.node_id,
            target.node_id,
            text,
            lambda: target.step(event),
            source.when_alive(lambda: source.step(failed)),
        )

    def client_sends(self, target_id: int, request: m.Request) -> None:
        def respond(response: m.Response) -> None:
            self._send(target_id, CLIENT, response_text(response), lambda: None)

        event = RequestReceived(respond, request)
        self._send(CLIENT, target_id, request_text(request), lambda: self.nodes[target_id].step(event))

    def _send(self, *message: Any) -> None:
        self.in_flight.append(Message(*message))

    def delivered(self) -> Iterator[str]:
        """Deliver all messages, those that follow from them included; yield a line for each."""
        for _ in range(MAX_MESSAGES):
            if not self.in_flight:
                return
            message = self.in_flight.pop(0)
            outcome = self._outcome(message)
            yield f"{_name(message.source_id)} -> {_name(message.target_id)}  {message.text}{outcome}"
            if not outcome:
                message.arrive()
            elif outcome == FAILED and message.fail is not None:
                message.fail()
        raise AssertionError(f"{MAX_MESSAGES} messages do not come to an end")

    def _outcome(self, message: Message) -> str:
        if CLIENT in message[:2]:
            return ""
        if not self.can_reach(message.source_id, message.target_id):
            return LOST
        return "" if self.nodes[message.target_id].is_running else FAILED


class QuorumCommands:
    """A quorum, and what a text can do to it."""

    def __init__(self) -> None:
        self._cluster: TextCluster | None = None

    def commands(self) -> Mapping[str, Command]:
        return {
            "voters": self._start,
            "timeout": self._timeout,
            "deliver": self._deliver,
            "partition": self._partition,
            "heal": self._heal,
            "lose": self._lose,
            "propose": self._propose,
            "add-voter": self._add_voter,
            "remove-voter": self._remove_voter,
            "resign": self._resign,
            "stop": self._stop,
            "start": self._restart,
            "advance": self._advance,
            "status": self._status,
            "log": self._log,
        }

    @property
    def cluster(self) -> TextCluster:
        assert self._cluster is not None, "a text begins with `voters`"
        return self._cluster

    def _start(self, words: Sequence[str]) -> Iterable[str]:
        ids, options = options_of(words)
        observers = options.pop("observers", "").split(",") if "observers" in options else []
        assert not options, options
        assert [*ids, *observers] == [str(1 + index) for index in range(len(ids) + len(observers))]
        self._cluster = TextCluster(len(ids), len(observers))
        self.cluster.start_all()
        list(self.cluster.delivered())
        return []

    def _node(self, word: str) -> Node:
        return self.cluster.nodes[int(word)]

    # -- time and network -----------------------------------------------------------------------------------------

    def _timeout(self, words: Sequence[str]) -> Iterable[str]:
        """Let the clock of one node reach its role's deadline."""
        (node_id,) = words
        node = self._node(node_id)
        assert node.core is not None
        role = node.core.role
        deadline_ms = next(getattr(role, name) for name in DEADLINES if hasattr(role, name))
        node.jump(max(deadline_ms - node.now_ms, 0))
        node.step(TimePassed())
        return self._one_line(node)

    def _deliver(self, words: Sequence[str]) -> Iterable[str]:
        assert words in ([], ["quietly"]), words
        lines = list(self.cluster.delivered())
        return [] if words else lines

    def _partition(self, words: Sequence[str]) -> Iterable[str]:
        side = words[: words.index("|")]
        self.cluster.partitioned = {int(word) for word in side}
        return []

    def _heal(self, words: Sequence[str]) -> Iterable[str]:
        assert not words
        self.cluster.partitioned = set()
        return []

    def _lose(self, words: Sequence[str]) -> Iterable[str]:
        assert not words
        lost, self.cluster.in_flight = self.cluster.in_flight, []
        return [f"{_name(each.source_id)} -> {_name(each.target_id)}  {each.text}{LOST}" for each in lost]

    def _advance(self, words: Sequence[str]) -> Iterable[str]:
        (duration_ms,) = map(int, words)
        cluster = self.cluster
        end_ms = cluster.now_ms + duration_ms
        responses: list[str] = []
        while True:
            responses += (line for line in cluster.delivered() if "-> client" in line)
            if cluster.next_due_ms() > end_ms:
                break
            cluster.run_one()
        cluster.now_ms = end_ms
        return [*responses, *self._status([])]

    # -- nodes and clients ----------------------------------------------------------------------------------------

    def _propose(self, words: Sequence[str]) -> Iterable[str]:
        node_id, *records = words
        node = self._node(node_id)
        for record in records:
            assert node.core is not None
            if not node.core.is_leader:
                yield f"{record}: {ErrorCode.NOT_LEADER_OR_FOLLOWER.name}"
                continue
            node.step(AppendRequested(node.core.leader_epoch, 1, record))
            yield f"{record}: offset {node.end_offset - 1}, epoch {node.last_epoch}"

    def _add_voter(self, words: Sequence[str]) -> Iterable[str]:
        target, voter = map(int, words)
        self.cluster.client_sends(target, m.AddVoterRequest(voter=voter_of(voter), timeout_ms=1000))
        return []

    def _remove_voter(self, words: Sequence[str]) -> Iterable[str]:
        target, voter = map(int, words)
        self.cluster.client_sends(target, m.RemoveVoterRequest(voter=voter_of(voter).key))
        return []

    def _resign(self, words: Sequence[str]) -> Iterable[str]:
        (node_id,) = words
        node = self._node(node_id)
        self.cluster.resign(node)
        return self._one_line(node)

    def _stop(self, words: Sequence[str]) -> Iterable[str]:
        for word in words:
            self._node(word).kill()
        return []

    def _restart(self, words: Sequence[str]) -> Iterable[str]:
        for word in words:
            self._node(word).start()
        return self._status(words)

    # -- shown ----------------------------------------------------------------------------------------------------

    def _status(self, words: Sequence[str]) -> list[str]:
        chosen = [self._node(word) for word in words] or list(self.cluster.nodes.values())
        return table("node  role  epoch  leader  voted  log  committed  voters", map(_row, chosen))

    def _one_line(self, node: Node) -> list[str]:
        assert node.core is not None
        return [f"{node.node_id}: {type(node.core.role).__name__} of epoch {node.core.leader_epoch}"]

    def _log(self, words: Sequence[str]) -> Iterable[str]:
        chosen = [self._node(word) for word in words]
        offsets = range(max(node.end_offset for node in chosen))
        return table(
            "  ".join(["offset", *(f"node {node.node_id}" for node in chosen)]),
            [[offset, *(_entry(node, offset) for node in chosen)] for offset in offsets],
        )


def _name(node_id: int) -> str:
    return "client" if node_id == CLIENT else str(node_id)


def _row(node: Node) -> list[Any]:
    core = node.core
    if core is None:
        return [node.node_id, "stopped", "", "", "", "", "", ""]
    role = core.role
    voted = getattr(role, "voted", None)
    return [
        node.node_id,
        type(role).__name__,
        core.leader_epoch,
        core.leader_id if core.leader_id >= 0 else "-",
        voted.node_id if voted is not None else "-",
        f"[{core.log.start_offset}, {core.log.end_offset})",
        max(core.high_watermark, 0),
        " ".join(map(str, core.voters.current.ids)),
    ]


def _entry(node: Node, offset: int) -> str:
    for batch in node.batches:
        if batch.base_offset <= offset <= batch.last_offset:
            index = offset - batch.base_offset
            return f"{_content(batch, index)} (epoch {batch.leader_epoch})"
    return "-"


def _content(batch: m.LogBatch, index: int) -> str:
    if not batch.controls:
        return str(batch.data)
    match batch.controls[index]:
        case m.LeaderChange(leader_id):
            return f"LeaderChange {leader_id}"
        case m.Voters(voters):
            return f"Voters {' '.join(map(str, voters.ids))}"
        case m.KRaftVersion(level):
            return f"KRaftVersion {level}"


def request_text(request: m.Request) -> str:
    match request:
        case m.VoteRequest():
            name = "PreVote" if request.is_pre_vote else "Vote"
            end = request.end
            return f"{name} epoch={request.leader_epoch} log-end={end.offset} last-epoch={end.leader_epoch}"
        case m.BeginEpochRequest():
            return f"BeginQuorumEpoch epoch={request.leader_epoch} leader={request.leader_id}"
        case m.EndEpochRequest():
            successors = ",".join(str(each.node_id) for each in request.preferred_successors)
            return f"EndQuorumEpoch epoch={request.leader_epoch} successors={successors}"
        case m.FetchRequest():
            return (
                f"Fetch epoch={request.leader_epoch} offset={request.fetch_offset} "
                f"last-epoch={request.last_fetched_epoch}"
            )
        case m.AddVoterRequest():
            return f"AddRaftVoter {request.voter.key.node_id}"
        case m.RemoveVoterRequest():
            return f"RemoveRaftVoter {request.voter.node_id}"
        case m.UpdateVoterRequest():
            return f"UpdateRaftVoter {request.voter.key.node_id}"
        case _:
            return type(request).__name__


def response_text(response: m.Response) -> str:
    error = f" {ErrorCode(response.error).name}" if response.error else ""
    epoch = f" epoch={response.leader_epoch}"
    match response:
        case m.VoteResponse():
            return f"Vote response{error}{epoch} {'granted' if response.is_granted else 'refused'}"
        case m.FetchResponse() if response.diverging is not None:
            diverging = response.diverging
            return f"Fetch response{error}{epoch} diverging: epoch {diverging.leader_epoch} ends at {diverging.offset}"
        case m.FetchResponse():
            batches = response.batches
            records = f" records=[{batches[0].base_offset}, {batches[-1].last_offset + 1})" if batches else ""
            return f"Fetch response{error}{epoch}{records} hw={max(response.high_watermark, 0)}"
        case m.VoterChangeResponse():
            message = textwrap.shorten(response.message or "", MESSAGE_WIDTH, placeholder=" ...")
            return f"response{error or ' NONE'}{': ' * bool(message)}{message}"
        case m.BeginEpochResponse() | m.EndEpochResponse():
            name = "BeginQuorumEpoch" if isinstance(response, m.BeginEpochResponse) else "EndQuorumEpoch"
            return f"{name} response{error}{epoch}"
        case _:
            return type(response).__name__
