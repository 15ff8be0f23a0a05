"""How Ctrl-C ends a client command within a second, whatever it is waiting for."""

import os
import signal
import threading
import time
from typing import Final

from kafkapy.cli.failure import INTERRUPTED

GRACE_S: Final = 0.7
"""How long a command may take to tidy up: leave its group, report what was delivered."""


def end_soon_after_interrupt() -> None:
    """From now on SIGINT ends this process after GRACE_S, with status 130, unless the command has ended by itself.

    Python raises KeyboardInterrupt only between its own instructions, and a call into librdkafka lasts up to 10 s. The
    wakeup descriptor is written by the signal handler in C, at once. Main thread only.
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
