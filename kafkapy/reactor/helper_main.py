"""The helper process: `python -m kafkapy.reactor.helper_main`. Runs calls one after another.

Requests and responses are JSON lines on stdin and stdout: {"id": 1, "call": "package.module:function", "arguments":
{...}}, answered by {"id": 1, "result": ...} or {"id": 1, "error": "..."}. A thread reads stdin, so that end-of-file
(the only notice of a killed parent) ends this process even during a call. Output that calls print goes to stderr.
"""

import importlib
import json
import os
import sys
import threading
import time
import traceback
from queue import SimpleQueue
from typing import Any, TextIO

_NICENESS = 10  # the event loop's latency is more important than this work
_STARVED_S = 1.0
"""A call that took longer, and less than a tenth of it on a processor, was kept from running."""


def main() -> None:
    """Serve calls until stdin ends."""
    responses = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    os.nice(_NICENESS)  # of this thread, and of those that it starts
    lines: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_read_lines, args=(lines,), daemon=True).start()
    if "--background" in sys.argv[1:] and hasattr(os, "SCHED_IDLE") and len(os.sched_getaffinity(0)) > 1:
        background = threading.Thread(target=_work_in_background, args=(lines, responses))
        background.start()
        background.join()
    while True:
        _respond(json.loads(lines.get()), responses)


def _work_in_background(lines: "SimpleQueue[str]", responses: TextIO) -> None:
    """Serve calls at the lowest scheduling priority until one of them has starved.

    Even a niced process delays the event loop by some milliseconds: a process that wakes up waits for the end of
    another's time slice, unless the other has SCHED_IDLE (Linux only). But where others keep all processors busy, such
    a thread gets a thousandth of one, and logs would never become compact. A thread may not leave that class without a
    privilege, so another one goes on, which is only niced. With a single processor SCHED_IDLE is not used at all.
    """
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # 0: this thread
    is_starved = False
    while not is_starved:
        request = json.loads(lines.get())
        started_s, started_cpu_s = time.monotonic(), time.thread_time()
        _respond(request, responses)
        duration_s = time.monotonic() - started_s
        is_starved = duration_s > _STARVED_S and time.thread_time() - started_cpu_s < duration_s / 10


def _read_lines(lines: "SimpleQueue[str]") -> None:
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)


def _respond(request: dict[str, Any], responses: TextIO) -> None:
    try:
        response = json.dumps({"id": request["id"], "result": _call(request["call"], request["arguments"])})
    except BaseException:
        response = json.dumps({"id": request["id"], "error": traceback.format_exc()})
    try:
        responses.write(response + "\n")
        responses.flush()
    except BrokenPipeError:  # the broker has ended, before the end of stdin was read
        os._exit(0)


def _call(function_path: str, arguments: dict[str, Any]) -> Any:
    module_name, _, name = function_path.partition(":")
    return getattr(importlib.import_module(module_name), name)(**arguments)


if __name__ == "__main__":
    main()
