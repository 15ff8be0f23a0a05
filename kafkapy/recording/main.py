"""`kafkapy record` records until Ctrl-C or SIGTERM; `kafkapy replay` plays and compares."""

import argparse
import asyncio
import os
import signal
import ssl
import time
from collections.abc import Sequence

from kafkapy.cli.command_config import CommandConfigError, current, option_taken
from kafkapy.cli.connecting_options import HELP
from kafkapy.cli.defaults import Setting, config_of_variable
from kafkapy.cli.failure import fail, note, reason_of
from kafkapy.cli.recording_options import record_parser, replay_parser
from kafkapy.errors import KafkapyError, ProtocolError
from kafkapy.recording.file import RecordingWriter, read
from kafkapy.recording.player import Player
from kafkapy.recording.proxy import Recorder


def main(command: str, arguments: Sequence[str]) -> int:
    """Run with the arguments after `kafkapy record` or `kafkapy replay`; return the exit status."""
    try:
        with option_taken(arguments, _config(arguments)) as left:
            if command == "record":
                return asyncio.run(_record(record_parser().parse_args(left), current().context()))
            return _replay(replay_parser().parse_args(left))
    except CommandConfigError as error:
        return fail(str(error))
    except (OSError, ProtocolError, KafkapyError) as error:
        return fail(reason_of(error))


def _config(arguments: Sequence[str]) -> Setting:
    """Return the default of --command-config: not a profile's, because --upstream and --to may name other brokers."""
    return Setting() if not {*HELP}.isdisjoint(arguments) else config_of_variable(os.environ)


async def _record(given: argparse.Namespace, tls: ssl.SSLContext | None) -> int:
    """Record what passes through until a signal; return the exit status. Raises OSError."""
    stop = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    with given.file.open("x", encoding="utf-8") as file:  # a recording of something rare is not overwritten
        host, port = given.upstream
        writer = RecordingWriter(file, f"{host}:{port}", time.time_ns() // 1_000_000)
        recorder = Recorder(writer, (host, port), tls, on_failure=stop.set, on_unreachable=note)
        try:
            own_host, own_port = await recorder.start(*given.listen)
        except OSError:
            given.file.unlink()
            raise
        print(f"kafkapy record ready on {own_host}:{own_port}", flush=True)
        await stop.wait()
        await recorder.stop()
        if recorder.failure is not None:
            raise recorder.failure
    print(f"{recorder.requests} requests in {given.file}")
    return 0


def _replay(given: argparse.Namespace) -> int:
    """Play a recording to a cluster and show what differs; return the exit status.

    Raises OSError, ProtocolError, KafkapyError.
    """
    compared = different = 0
    with Player(given.to, current()) as player:
        for response in player.play(read(given.file)):
            compared += 1
            if not response.found:
                continue
            different += 1
            print(f"The response to {response.title} differs:")
            for each in response.found:
                print(f"  {each}")
            if not given.all:
                return 1
        unsent = player.unsent
    if unsent:
        print(f"{unsent} requests were not sent: secrets were left out of them, or they cannot be read")
    print(f"{compared} responses compared, {different} of them differ")
    return 1 if different else 0
