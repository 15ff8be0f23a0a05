"""Ends a client command within a second after Ctrl-C, even during a blocking call.

Within `sigterm_as_interrupt`, SIGTERM has the same effect.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kafkapy.cli.failure import INTERRUPTED

GRACE_S: Final = 0.7
"""How long a command may take to clean up: leave its group, report what was delivered."""


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Within the context, SIGTERM raises KeyboardInterrupt, as Ctrl-C does. No effect outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def end_soon_after_interrupt() -> None:
    """After SIGINT, end this process with status 130 within GRACE_S, unless the command ends by itself.

    After SIGTERM, too, within sigterm_as_interrupt; elsewhere it ends the process at once.
    Python raises KeyboardInterrupt only between its own instructions, and a call into librdkafka may last 10 s. The
    wakeup descriptor is written immediately, by the signal handler in C. Main thread only.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_end_after_interrupt, args=(reader,), name="kafkapy-interrupt", daemon=True).start()


def _end_after_interrupt(reader: int) -> None:
    while os.read(reader, 1)[0] not in (signal.SIGINT, signal.SIGTERM):
        pass
    time.sleep(GRACE_S)
    os._exit(INTERRUPTED)
