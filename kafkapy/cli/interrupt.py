"""Ends a client command within a second after Ctrl-C, even during a blocking call."""

import os
import signal
import threading
import time
from typing import Final

from kafkapy.cli.failure import INTERRUPTED

GRACE_S: Final = 0.7
"""How long a command may take to clean up: leave its group, report what was delivered."""


def end_soon_after_interrupt() -> None:
    """After SIGINT, end this process with status 130 within GRACE_S, unless the command ends by itself.

    Python raises KeyboardInterrupt only between its own instructions, and a call into librdkafka may last 10 s. The
    wakeup descriptor is written immediately, by the signal handler in C. Main thread only.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_end_after_interrupt, args=(reader,), name="kafkapy-interrupt", daemon=True).start()


def _end_after_interrupt(reader: int) -> None:
    while os.read(reader, 1)[0] != signal.SIGINT:
        pass
    time.sleep(GRACE_S)
    os._exit(INTERRUPTED)
