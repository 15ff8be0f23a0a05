"""What the tests of the helper process have it do."""

import os
import time


def add(first: int, second: int) -> int:
    print("a print of the call does not disturb the responses")
    return first + second


def process_id() -> int:
    return os.getpid()


def scheduler() -> int:
    return os.sched_getscheduler(0)


def fail(reason: str) -> None:
    raise ValueError(reason)


def crash() -> None:
    os._exit(3)


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def loaded_modules() -> list[str]:
    import sys

    return sorted(sys.modules)


def echo(text: str) -> str:
    return text
