"""The helper process: `python -m kafkapy.reactor.helper_main`. Runs one call after another, as JSON lines say.

In on stdin: {"id": 1, "call": "package.module:function", "arguments": {...}}; out on stdout: {"id": 1, "result": ...}
or {"id": 1, "error": "..."}. A thread reads stdin, so that the end of the parent ends this process even in mid-call:
stdin's end is all the notice a killed parent gives. What calls print goes to stderr.
"""

import importlib
import json
import os
import sys
import threading
import traceback
from queue import SimpleQueue
from typing import Any, TextIO

_NICENESS = 10  # the event loop's latency goes before this work


def main() -> None:
    """Serve calls until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _give_way("--background" in sys.argv[1:])
    lines: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_read_lines, args=(lines,), daemon=True).start()
    while True:
        _answer(json.loads(lines.get()), answers)


def _give_way(is_background: bool) -> None:
    """Let the event loop go first. In the background even a niced process is in its way for some milliseconds.

    A scheduler lets who wakes up wait for the end of another's time slice, unless that is of SCHED_IDLE. Where there is
    one processor it would get next to none of it, beside a busy broker. Linux alone has SCHED_IDLE.
    """
    os.nice(_NICENESS)
    if is_background and hasattr(os, "SCHED_IDLE") and len(os.sched_getaffinity(0)) > 1:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _read_lines(lines: "SimpleQueue[str]") -> None:
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)


def _answer(request: dict[str, Any], answers: TextIO) -> None:
    try:
        answer = json.dumps({"id": request["id"], "result": _call(request["call"], request["arguments"])})
    except BaseException:
        answer = json.dumps({"id": request["id"], "error": traceback.format_exc()})
    try:
        answers.write(answer + "\n")
        answers.flush()
    except BrokenPipeError:  # the broker is gone, and stdin's end not seen yet
        os._exit(0)


def _call(function_path: str, arguments: dict[str, Any]) -> Any:
    module_name, _, name = function_path.partition(":")
    return getattr(importlib.import_module(module_name), name)(**arguments)


if __name__ == "__main__":
    main()
