"""A recording: what is noted and what is left out, which differences count, what is sent again to another cluster."""

import asyncio
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from errno import ENOSPC
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka import Consumer, Producer

from kafkapy import Broker
from kafkapy.cli.profiles import Profile, Profiles, path_of_profiles, save
from kafkapy.embedded.loop_thread import LoopThread
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import RequestHeader
from kafkapy.protocol.json_lines import to_json
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.consumer_group_heartbeat_response import Assignment, ConsumerGroupHeartbeatResponse
from kafkapy.protocol.messages.create_delegation_token_request import CreateDelegationTokenRequest
from kafkapy.protocol.messages.create_delegation_token_response import CreateDelegationTokenResponse
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkapy.protocol.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from kafkapy.protocol.messages.envelope_request import EnvelopeRequest
from kafkapy.protocol.messages.envelope_response import EnvelopeResponse
from kafkapy.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkapy.protocol.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from kafkapy.protocol.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kafkapy.protocol.messages.metadata_request import MetadataRequest
from kafkapy.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafkapy.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from kafkapy.recording import player, proxy
from kafkapy.recording.compare import differences
from kafkapy.recording.file import (
    REQUEST,
    RESPONSE,
    Event,
    RecordingError,
    RecordingWriter,
    header_of,
    read,
    read_request,
    write_request,
    write_response,
)
from kafkapy.recording.main import main
from kafkapy.recording.proxy import Recorder
from kafkapy.recording.roles import Roles
from kafkapy.recording.secrets import without_secrets_of_request, without_secrets_of_response
from tests.support.wire import request_frame

HEADER = RequestHeader(3, 12, 7, "client")


@contextmanager
def recorded(broker: Broker, path: Path) -> Iterator[str]:
    """Note what passes to a broker; the address for clients."""
    host, _, port = broker.bootstrap_servers.rpartition(":")
    loop = LoopThread()
    with path.open("w", encoding="utf-8") as file:
        recorder = Recorder(RecordingWriter(file, broker.bootstrap_servers, 0), (host, int(port)))
        address = loop.call(lambda: recorder.start("127.0.0.1", 0))
        yield f"{address[0]}:{address[1]}"
        loop.call(recorder.stop)
    loop.close()


def use(servers: str, **config: str) -> None:
    """Produce five records and read them in a group."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, **config})
    for number in range(5):
        producer.produce("orders", b"value %d" % number, key=b"key")
    assert producer.flush(60) == 0
    group = {"group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": servers, **group, **config})
    consumer.subscribe(["orders"])
    assert len(consumer.consume(5, 60)) == 5
    consumer.close()


def test_a_recording_plays_on_another_broker_and_shows_what_differs(tmp_path: Path, capsys):
    """All responses are alike, but for ids, addresses and times. Where the topic is missing, one is not."""
    path = tmp_path / "recording"
    with Broker() as broker, recorded(broker, path) as servers:
        broker.create_topics("orders")
        use(servers)
        port = broker.bootstrap_servers.rpartition(":")[2]
        nodes = {event.node for event in read(path)}
    assert nodes == {0, 1}, "the broker was found through the proxy"
    with Broker() as other:
        other.create_topics("orders")
        assert other.bootstrap_servers.rpartition(":")[2] != port
        status = main("replay", [str(path), "--to", other.bootstrap_servers])
        printed = capsys.readouterr().out
        assert status == 0, printed
        assert ", 0 of them differ" in printed
    with Broker(properties={"auto.create.topics.enable": False}) as empty:
        assert main("replay", [str(path), "--to", empty.bootstrap_servers]) == 1
    printed = capsys.readouterr().out
    assert "topics[orders].errorCode: recorded 0 (NONE), now 3 (UNKNOWN_TOPIC_OR_PARTITION)" in printed


def test_an_error_that_is_new_is_found(tmp_path: Path, capsys):
    path = tmp_path / "recording"
    with Broker() as broker, recorded(broker, path) as servers:
        broker.create_topics("orders")
        use(servers)
    with Broker(properties={"message.max.bytes": 10}) as strict:
        strict.create_topics("orders")
        assert main("replay", [str(path), "--to", strict.bootstrap_servers, "--all"]) == 1
    printed = capsys.readouterr().out
    assert "Produce" in printed
    assert "errorCode: recorded 0 (NONE), now 10 (MESSAGE_TOO_LARGE)" in printed


def test_a_produce_without_a_response_is_not_waited_for(tmp_path: Path, monkeypatch):
    """Of acks=0 the proxy keeps nothing; a request that is never answered and not understood is dropped at last."""
    links: list[proxy._Link] = []
    new_link = proxy._Link.__init__

    def kept(link: proxy._Link, *arguments: Any) -> None:
        new_link(link, *arguments)
        links.append(link)

    monkeypatch.setattr(proxy._Link, "__init__", kept)
    with Broker() as broker, recorded(broker, tmp_path / "recording") as servers:
        broker.create_topics("orders")
        producer = Producer({"bootstrap.servers": servers, "acks": 0, "linger.ms": 0, "batch.num.messages": 1})
        for number in range(300):
            producer.produce("orders", b"value %d" % number, partition=0)
        assert producer.flush(60) == 0
        broker.topics["orders"].wait_for(300)
        produces = [event for event in read(tmp_path / "recording") if event.frame[:2] == b"\0\0"]
        assert len([each for each in produces if each.kind == "request"]) >= 300
        assert [header for link in links for header in link._asked.values() if header.api_key == 0] == []


def test_what_is_never_answered_is_forgotten(monkeypatch):
    monkeypatch.setattr(proxy, "MAX_ASKED", 3)
    link = proxy._Link(None, 1, 0)
    for number in range(5):
        link._remember(RequestHeader(3, 12, number, "client"), b"")
    assert list(link._asked) == [2, 3, 4]


def test_a_password_is_in_no_recording(tmp_path: Path):
    path = tmp_path / "recording"
    with Broker(users={"alice": "extremely-secret"}) as broker, recorded(broker, path) as servers:
        config = broker.client_config("alice")
        use(servers, **{key: value for key, value in config.items() if key != "bootstrap.servers"})
    events = list(read(path))
    logins = [event for event in events if "authBytes" in event.left_out]
    assert logins, "the client logged in"
    assert not any(b"extremely-secret" in event.frame for event in events)
    assert any(b"value 4" in event.frame for event in events), "records are kept"


def test_secrets_are_left_out_by_their_fields():
    request = IncrementalAlterConfigsRequest()
    configs = [AlterableConfig("ssl.keystore.password", value="pw"), AlterableConfig("retention.ms", value="5")]
    request.resources = [AlterConfigsResource(2, resource_name="t", configs=configs)]
    header = RequestHeader(44, 1, 1, None)
    frame, left_out = without_secrets_of_request(header, write_request(header, to_json(request, 1)))
    assert left_out == ("ssl.keystore.password",)
    found = read_request(frame)
    assert [each["value"] for each in found[1]["resources"][0]["configs"]] == ["", "5"]
    header = RequestHeader(36, 2, 1, None)
    request = SaslAuthenticateRequest(auth_bytes=b"\0alice\0pw")
    frame, left_out = without_secrets_of_request(header, write_request(header, to_json(request, 2)))
    assert (left_out, b"alice" in frame) == (("authBytes",), False)
    header = RequestHeader(38, 3, 1, None)
    response = CreateDelegationTokenResponse(token_id="id", hmac=b"0123456789")
    frame, left_out = without_secrets_of_response(header, write_response(header, to_json(response, 3)))
    assert (left_out, b"0123456789" in frame) == (("hmac",), False)


def test_a_login_that_is_not_understood_is_left_out_whole():
    later = write_request(RequestHeader(36, 2, 7, None), to_json(SaslAuthenticateRequest(auth_bytes=b"\0alice\0pw"), 2))
    later = later[:2] + (99).to_bytes(2, "big") + later[4:]
    frame, left_out = without_secrets_of_request(header_of(later), later)
    assert (frame, left_out) == (later[:8], ("body",))
    response = later[4:]
    frame, left_out = without_secrets_of_response(header_of(later), response)
    assert (frame, left_out) == (response[:4], ("body",))
    metadata = b"\0\x03\0\x63\0\0\0\x07\xff\xff\0strange"
    assert without_secrets_of_request(header_of(metadata), metadata) == (metadata, ())


def test_the_request_within_an_envelope_is_left_out():
    header = RequestHeader(58, 0, 7, None)
    request = write_request(header, to_json(EnvelopeRequest(request_data=b"a salted password"), 0))
    assert without_secrets_of_request(header, request) == (request[:8], ("body",))
    response = write_response(header, to_json(EnvelopeResponse(response_data=b"an hmac"), 0))
    assert without_secrets_of_response(header, response) == (response[:4], ("body",))


def test_a_passphrase_is_a_secret():
    configs = [AlterableConfig("sasl.oauthbearer.assertion.private.key.passphrase", value="pw")]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(4, resource_name="1", configs=configs)])
    header = RequestHeader(44, 1, 1, None)
    assert without_secrets_of_request(header, write_request(header, to_json(request, 1)))[1] == (configs[0].name,)


CASES = [
    ({"a": 1}, {"a": 1}, []),
    ({"a": 1}, {"a": 2}, ["a: recorded 1, now 2"]),
    ({"errorCode": 0}, {"errorCode": 6}, ["errorCode: recorded 0 (NONE), now 6 (NOT_LEADER_OR_FOLLOWER)"]),
    ({"throttleTimeMs": 0, "expiryTimestampMs": 5}, {"throttleTimeMs": 9, "expiryTimestampMs": 6}, []),
    ({"topics": [{"name": "a"}, {"name": "b"}]}, {"topics": [{"name": "b"}, {"name": "a"}]}, []),
    ({"topics": [{"name": "a"}]}, {"topics": []}, ["topics[a]: recorded there, now missing"]),
    ({"topics": []}, {"topics": [{"name": "more"}]}, ["topics[more]: recorded missing, now there"]),
    ({"ids": [1, 2]}, {"ids": [1]}, ["ids.length: recorded 2, now 1"]),
    ({"x": [{"memberId": "m1"}, {"memberId": "m1"}]}, {"x": [{"memberId": "n1"}, {"memberId": "n1"}]}, []),
    (
        {"x": [{"memberId": "m1"}, {"memberId": "m1"}]},
        {"x": [{"memberId": "n1"}, {"memberId": "n2"}]},
        ["x[1].memberId: recorded m1, now n2"],
    ),
    (
        {"x": [{"producerId": 1}, {"producerId": 2}]},
        {"x": [{"producerId": 7}, {"producerId": 7}]},
        ["x[1].producerId: recorded 2, now 7"],
    ),
    ({"producerId": -1}, {"producerId": 7}, ["producerId: recorded -1, now 7"]),
    ({"isrNodes": [1, 2]}, {"isrNodes": [4, 5]}, []),
    ({"isrNodes": [1, 2]}, {"isrNodes": [4]}, ["isrNodes: recorded [1, 2], now [4]"]),
]


@pytest.mark.parametrize(("before", "now", "expected"), CASES, ids=[str(index) for index in range(len(CASES))])
def test_a_difference_is_named_by_its_field(before, now, expected):
    assert [str(each) for each in differences(HEADER, before, now, Roles())] == expected


def test_what_a_broker_can_do_is_not_compared():
    header = RequestHeader(18, 3, 1, None)
    assert differences(header, {"errorCode": 0, "apiKeys": [1]}, {"errorCode": 0, "apiKeys": []}, Roles()) == []
    assert differences(header, {"errorCode": 0}, {"errorCode": 35}, Roles())


def test_a_value_of_now_is_sent_for_a_recorded_one():
    roles = Roles()
    assert roles.meet("member", "m1", "n1")
    assert roles.meet("producer", 5, 9)
    request = {"memberId": "m1", "groupId": "m1", "assignments": [{"memberId": "m1"}], "producerId": 5, "leader": "m1"}
    assert roles.translated(request) == {
        **request,
        "memberId": "n1",
        "assignments": [{"memberId": "n1"}],
        "producerId": 9,
    }
    assert roles.translated({"leader": "m1"}, is_join=True) == {"leader": "n1"}


class Scripted:
    """Brokers that respond as they are told to: which were connected to, and what they were sent."""

    def __init__(self, *responses: object) -> None:
        self._responses = list(responses)
        self.addresses: list[str] = []
        self.sent: list[bytes] = []
        self.asked: list[str] = []

    def to_any(self, address: str, security: object = None) -> "Scripted":
        self.addresses.append(address)
        return self

    def call(self, request: object, version: int) -> MetadataResponse:
        return MetadataResponse(brokers=[MetadataResponseBroker(number, host="b", port=number) for number in (1, 2)])

    def send_frame(self, frame: bytes) -> None:
        self.sent.append(frame)

    def receive_frame(self, timeout_s: float) -> bytes:
        header = header_of(self.sent[-1])
        assert header is not None
        response = self._responses.pop(0) if len(self._responses) > 1 else self._responses[0]
        return write_response(header, to_json(response, header.api_version))

    def close(self) -> None: ...

    def __enter__(self) -> "Scripted":
        return self

    def __exit__(self, *_: object) -> None: ...


def exchange(version: int, request: object, response: object, *, node: int = 0) -> list[Event]:
    """Return the events of a request, on a connection of its own, and its response."""
    header = RequestHeader(type(request).API_KEY, version, 1, None)
    frames = write_request(header, to_json(request, version)), write_response(header, to_json(response, version))
    return [Event(0, 1, node, kind, frame) for kind, frame in zip((REQUEST, RESPONSE), frames, strict=True)]


def heartbeats_sent(monkeypatch, member_id: str, recorded: dict[str, object], *now: dict[str, object]) -> int:
    """Return how often a heartbeat is sent that was answered so in the recording, and is answered so now."""
    responses = [ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=1, **fields) for fields in (recorded, *now)]
    scripted = Scripted(*responses[1:])
    monkeypatch.setattr(player, "Connection", scripted)
    monkeypatch.setattr(player, "READY_S", 0.2)
    request = ConsumerGroupHeartbeatRequest("g", member_id=member_id, topic_partitions=[], subscribed_topic_names=["t"])
    events = exchange(0, request, responses[0])
    with player.Player("b:0") as playing:
        assert len(list(playing.play(events))) == 1
    return len(scripted.sent)


def test_a_member_is_asked_until_it_has_its_assignment(monkeypatch):
    assert heartbeats_sent(monkeypatch, "m", {"assignment": Assignment([])}, {}, {"assignment": Assignment([])}) == 2


def test_a_member_without_an_id_joins_once(monkeypatch):
    """Of ConsumerGroupHeartbeat 0, sent again, a broker would make another member each time."""
    assert heartbeats_sent(monkeypatch, "", {"assignment": Assignment([])}, {}) == 1


def test_a_member_with_its_assignment_is_not_asked_for_other_values(monkeypatch):
    """A cluster with another group.consumer.heartbeat.interval.ms will not change its mind."""
    both = [{"assignment": Assignment([]), "heartbeat_interval_ms": interval_ms} for interval_ms in (5_000, 3_000)]
    assert heartbeats_sent(monkeypatch, "m", *both) == 1


def test_what_came_where_the_recording_has_an_error_is_remembered(monkeypatch):
    """A coordinator that moved in the recording, and not now: the assignment came once, with the first heartbeat."""
    assigned = ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=2, assignment=Assignment([]))
    scripted = Scripted(assigned, ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=2))
    monkeypatch.setattr(player, "Connection", scripted)
    monkeypatch.setattr(player, "READY_S", 0.2)
    request = ConsumerGroupHeartbeatRequest("g", member_id="m", member_epoch=1, topic_partitions=[])
    moved = ConsumerGroupHeartbeatResponse(error_code=int(ErrorCode.NOT_COORDINATOR))
    events = [event for response in (moved, assigned) for event in exchange(0, request, response)]
    with player.Player("b:0") as playing:
        assert [each.found for each in playing.play(events)] == [[], []]
    assert len(scripted.sent) == 2


def test_a_request_goes_to_the_broker_of_its_id(monkeypatch):
    """Whichever the recorded client asked first."""
    scripted = Scripted(MetadataResponse())
    monkeypatch.setattr(player, "Connection", scripted)
    with player.Player("b:0") as playing:
        list(playing.play(exchange(12, MetadataRequest([]), MetadataResponse(), node=2)))
    assert scripted.addresses == ["b:0", "b:2"]


def test_a_request_without_its_secrets_is_not_sent(monkeypatch):
    """It would set a password to nothing."""
    scripted = Scripted(IncrementalAlterConfigsResponse())
    monkeypatch.setattr(player, "Connection", scripted)
    configs = [AlterableConfig("ssl.keystore.password", value="")]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(4, resource_name="1", configs=configs)])
    sent, response = exchange(1, request, IncrementalAlterConfigsResponse())
    sent = Event(0, 1, 0, REQUEST, sent.frame, ("ssl.keystore.password",))
    with player.Player("b:0") as playing:
        assert list(playing.play([sent, response])) == []
        assert playing.unsent == 1
    assert scripted.sent == []


def test_a_secret_of_now_is_neither_compared_nor_shown(monkeypatch):
    """The recording has none: not that of its own cluster, and not that of this one."""
    token = CreateDelegationTokenResponse(token_id="id", hmac=b"0123456789")
    monkeypatch.setattr(player, "Connection", Scripted(token))
    sent, response = exchange(3, CreateDelegationTokenRequest(), token)
    frame, left_out = without_secrets_of_response(header_of(sent.frame), response.frame)
    whole = Event(0, 1, 0, RESPONSE, frame[:4], ("body",))
    for recorded in (Event(0, 1, 0, RESPONSE, frame, left_out), whole):
        with player.Player("b:0") as playing:
            assert [each.found for each in playing.play([sent, recorded])] == [[]]


class SlowToLead(Scripted):
    """Brokers that know a new topic at the second request, and lead it at the fourth."""

    def call(self, request: object, version: int) -> object:
        self.asked.append(type(request).__name__)
        if isinstance(request, MetadataRequest):
            topic = MetadataResponseTopic(name="new", partitions=[MetadataResponsePartition(leader_id=1)])
            topic.error_code = 3 if len(self.asked) == 1 else 0
            return MetadataResponse(brokers=[MetadataResponseBroker(1, host="b", port=1)], topics=[topic])
        partition = ListOffsetsPartitionResponse(error_code=6 if len(self.asked) < 5 else 0)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("new", partitions=[partition])])


@pytest.mark.parametrize(("is_validated_only", "asked"), [(False, "MMLML"), (True, "")])
def test_a_topic_that_was_created_now_is_led_before_it_is_used(monkeypatch, is_validated_only: bool, asked: str):
    created = CreateTopicsResponse(topics=[CreatableTopicResult("new")])
    scripted = SlowToLead(created)
    monkeypatch.setattr(player, "Connection", scripted)
    request = CreateTopicsRequest([CreatableTopic("new", num_partitions=1)], validate_only=is_validated_only)
    with player.Player("b:0") as playing:
        assert [each.found for each in playing.play(exchange(7, request, created))] == [[]]
    assert "".join(name[0] for name in scripted.asked) == asked


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is no recording"),
        ("hello\n", "is no recording"),
        ('{"kafkapy_recording": 2}\n', "has version 2; this release reads 1"),
        ('{"kafkapy_recording": 1}\n{"kind": "request"}\n', "line 2 is no frame"),
        (
            '{"kafkapy_recording": 1}\n{"kind": "request", "frame": "*", "at_ms": 0, "connection": 1, "node": 0}\n',
            "line 2",
        ),
    ],
)
def test_a_file_that_is_no_recording_is_refused(text, reason, tmp_path: Path, capsys):
    path = tmp_path / "file"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RecordingError, match=reason):
        list(read(path))
    assert main("replay", [str(path), "--to", "127.0.0.1:1"]) == 1
    assert reason in capsys.readouterr().err


def test_a_recording_that_was_cut_off_is_read_up_to_there(tmp_path: Path):
    path = tmp_path / "file"
    line = json.dumps({"kind": "request", "frame": "AAAA", "at_ms": 0, "connection": 1, "node": 0})
    path.write_text(f'{{"kafkapy_recording": 1}}\n{line}\n{line[:20]}', encoding="utf-8")
    assert len(list(read(path))) == 1


def test_an_upstream_that_does_not_answer_is_named_once_and_ends_the_clients_connection(tmp_path: Path):
    lines: list[str] = []

    async def ends() -> list[bytes]:
        with (tmp_path / "file").open("w", encoding="utf-8") as file:
            writer = RecordingWriter(file, "127.0.0.1:1", 0)
            recorder = Recorder(writer, ("127.0.0.1", 1), on_unreachable=lines.append)
            host, port = await recorder.start("127.0.0.1", 0)
            found = [await read_all(host, port), await read_all(host, port)]
            await recorder.stop()
            return found

    async def read_all(host: str, port: int) -> bytes:
        reader, writer = await asyncio.open_connection(host, port)
        found = await reader.read()
        writer.close()
        return found

    assert asyncio.run(ends()) == [b"", b""]
    assert len(lines) == 1
    assert lines[0].startswith("127.0.0.1:1 cannot be reached: ")


def test_a_replay_names_the_broker_that_it_does_not_reach(tmp_path: Path, capsys):
    path = tmp_path / "recording"
    with path.open("w", encoding="utf-8") as file:
        frame = request_frame(MetadataRequest(), 12)
        RecordingWriter(file, "127.0.0.1:9", 0).add(Event(0, 1, 0, REQUEST, frame, ()))
    assert main("replay", [str(path), "--to", "127.0.0.1:1"]) == 1
    assert "127.0.0.1:1: Connection refused" in capsys.readouterr().err


class FullDisk(StringIO):
    """A file to which only the first line can be written."""

    def write(self, text: str) -> int:
        if self.tell():
            raise OSError(ENOSPC, os.strerror(ENOSPC))
        return super().write(text)


def test_a_recording_that_cannot_be_written_ends_and_says_why():
    async def ends() -> OSError | None:
        failed = asyncio.Event()
        recorder = Recorder(RecordingWriter(FullDisk(), "127.0.0.1:1", 0), ("127.0.0.1", 1), on_failure=failed.set)
        with pytest.raises(OSError, match="No space"):
            recorder.record(1, 0, REQUEST, b"frame", ())
        await asyncio.wait_for(failed.wait(), 10)
        return recorder.failure

    failure = asyncio.run(ends())
    assert failure is not None
    assert failure.errno == ENOSPC


def test_the_login_of_a_profile_is_not_for_the_brokers_that_a_replay_names(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    save(path_of_profiles(os.environ), Profiles({"prod": Profile("b1:9092", "/missing")}, "prod"))
    assert main("replay", ["recording", "--to", "127.0.0.1:1"]) == 1
    assert "/missing" not in capsys.readouterr().err
    monkeypatch.setenv("KAFKAPY_COMMAND_CONFIG", "/missing")
    assert main("replay", ["recording", "--to", "127.0.0.1:1"]) == 1
    assert "/missing cannot be read" in capsys.readouterr().err


def test_a_recording_is_not_overwritten_and_a_port_that_is_taken_leaves_none(tmp_path: Path, capsys):
    kept, new = tmp_path / "kept", tmp_path / "new"
    kept.write_text("a recording", encoding="utf-8")
    assert main("record", ["--upstream", "127.0.0.1:1", "--listen", "127.0.0.1:0", str(kept)]) == 1
    assert "kept: File exists" in capsys.readouterr().err
    assert kept.read_text(encoding="utf-8") == "a recording"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main("record", ["--upstream", "127.0.0.1:1", "--listen", f"127.0.0.1:{port}", str(new)]) == 1
    assert "address already in use" in capsys.readouterr().err
    assert not new.exists()
