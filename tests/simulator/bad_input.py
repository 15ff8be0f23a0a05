"""What a broker makes of bad input, line by line: for a comparison of the interpreted source with the compiled one.

    python -m tests.simulator.bad_input >lines

A whole broker in virtual time is sent Kafka's own requests, every served API at every version, as they are and changed
at random (seeded), and produce requests with changed batches of every codec. A line each: the response's bytes, or that
the connection was closed, or that the request waits; and the log lines of it. Further lines are changed messages of all
schemas, decoded: their JSON, or the error.

With PYTHONHASHSEED=0 two runs of the same source print the same.
"""

import json
import logging
import zlib
from collections.abc import Iterator
from random import Random
from typing import Final

from kafkapy.errors import ProtocolError
from kafkapy.protocol.api import message_type
from kafkapy.protocol.json_lines import to_json
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.protocol.primitives import Message
from kafkapy.record.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from tests.simulator.broker_world import Machine, Topic
from tests.simulator.loop import START_WALL_MS, SimLoop, run
from tests.support.bad_frames import changed, changed_batch, frames_of, golden_bodies, served
from tests.support.batches import build_batch
from tests.support.wire import request_frame

CHANGED_FRAMES: Final = 6
"""Of each served version."""
CHANGED_BATCHES: Final = 120
"""Of each codec."""
CHANGED_MESSAGES: Final = 3
"""Of each golden message."""
ANSWERED_WITHIN_S: Final = 2.0
"""Virtual: a request without a response then waits for records, or for members."""
SHUTDOWN_APIS: Final = frozenset({7})
"""ControlledShutdown stops the broker that is asked."""
PRODUCE_VERSION: Final = 11


class Lines(logging.Handler):
    """Collects what is printed, log lines in their place."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        self.lines.append(f"  {record.levelname} {record.name}: {record.getMessage()} {error!r}")


def outcomes() -> list[str]:
    """Return all lines."""
    lines = Lines()
    logger = logging.getLogger("kafkapy")
    level, propagates = logger.level, logger.propagate
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        run(lambda loop: _serve_all(loop, lines.lines), limit_seconds=1e9)
    finally:
        logger.removeHandler(lines)
        logger.setLevel(level)
        logger.propagate = propagates
    return [*lines.lines, *_decoded()]


async def _serve_all(loop: SimLoop, lines: list[str]) -> None:
    machine = Machine(loop, offsets_topic_num_partitions="1", transaction_state_log_num_partitions="1")
    await machine.boot()
    topic = await machine.connect().create_topic("t")
    for name, frame in [*_frames(), *_produces(topic)]:
        lines.append(f"{name}: {await _outcome(machine, frame)}")
    await machine.stop()


def _frames() -> Iterator[tuple[str, bytes]]:
    for api, version in served():
        if api.api_key in SHUTDOWN_APIS:
            continue
        random = Random(1000 * api.api_key + version)
        frames = frames_of(api, version)
        frames += [changed(random.choice(frames), random) for _ in range(CHANGED_FRAMES)]
        for number, frame in enumerate(frames):
            yield f"api {api.api_key} v{version} frame {number}", frame


def _produces(topic: Topic) -> Iterator[tuple[str, bytes]]:
    headers = [("name", b"value"), ("empty", None)]
    records = [(START_WALL_MS + n, b"k%d" % n, b"v" * n * 3, headers[: n % 3]) for n in range(40)]
    for codec in (NONE, GZIP, SNAPPY, LZ4, ZSTD):
        random = Random(codec)
        whole = build_batch(records, compression=codec)
        few = build_batch(records[:2], compression=codec)
        for number in range(CHANGED_BATCHES):
            batch = changed_batch(few if number % 2 else whole, random)
            data = TopicProduceData(name=topic.name, partition_data=[PartitionProduceData(0, records=batch)])
            request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data])
            yield f"codec {codec} batch {number}", request_frame(request, PRODUCE_VERSION)


async def _outcome(machine: Machine, frame: bytes) -> str:
    """Send a frame over a connection of its own and tell what comes back."""
    link = machine.connect().link
    await link.send_frame(frame)
    loop = machine.loop
    waiting = loop.create_task(link.receive_frame())
    done = loop.create_future()
    waiting.add_done_callback(lambda _: done.done() or done.set_result(None))
    timer = loop.call_later(ANSWERED_WITHIN_S, lambda: done.done() or done.set_result(None))
    await done
    timer.cancel()
    if not waiting.done():
        waiting.cancel()
        link.channel.close()
        return "waits"
    try:
        return _short(waiting.result())
    except EOFError:
        return "closed"
    finally:
        link.channel.close()


def _decoded() -> Iterator[str]:
    random = Random(7)
    for message, by_version in sorted(golden_bodies().items()):
        kind = message_type(message)
        for version, bodies in sorted(by_version.items()):
            for number in range(CHANGED_MESSAGES):
                data = changed(b"\0\0\0\0" + random.choice(bodies), random)[4:]
                yield f"{message} v{version} {number}: {_text_of(kind, data, version)}"


def _text_of(kind: type[Message], data: bytes, version: int) -> str:
    try:
        return _short(json.dumps(to_json(kind.decode(data, version), version)).encode())
    except ProtocolError as error:
        return f"{type(error).__name__}: {error}"


def _short(data: bytes) -> str:
    """Return bytes as hex, long ones as their size and CRC-32."""
    return data.hex() if len(data) <= 64 else f"{len(data)} bytes, {data[:16].hex()}... {zlib.crc32(data):08x}"


if __name__ == "__main__":
    print("\n".join(outcomes()))
