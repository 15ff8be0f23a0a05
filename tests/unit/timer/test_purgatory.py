import random

import pytest

from kafkapy.timer.purgatory import DelayedOperation, Purgatory
from kafkapy.timer.wheel import TimingWheel
from tests.support.wheel_steps import count_steps


class Operation(DelayedOperation):
    def __init__(self) -> None:
        super().__init__()
        self.can_complete = False
        self.history: list[str] = []

    def try_complete(self) -> bool:
        return self.can_complete and self.complete()

    def on_complete(self) -> None:
        self.history.append("complete")

    def on_expiration(self) -> None:
        self.history.append("expire")


class Bench:
    def __init__(self) -> None:
        self.wheel = TimingWheel(start_ms=0)
        self.purgatory = Purgatory(self.wheel)

    def wait(self, *keys: object, timeout_ms: int = 500) -> Operation:
        operation = Operation()
        assert not self.purgatory.try_complete_else_watch(operation, keys, timeout_ms=timeout_ms, now_ms=0)
        return operation

    def advance(self, now_ms: int) -> None:
        for entry in self.wheel.advance(now_ms):
            entry.on_timeout(now_ms)


def test_completes_at_once_without_waiting() -> None:
    bench, operation = Bench(), Operation()
    operation.can_complete = True
    assert bench.purgatory.try_complete_else_watch(operation, ["k"], timeout_ms=500, now_ms=0)
    assert operation.history == ["complete"]
    assert bench.purgatory.waiting_count == 0
    assert bench.wheel.next_deadline_ms() is None


def test_what_is_postponed_times_out_so_much_later() -> None:
    bench = Bench()
    operation = bench.wait("k", "l")
    bench.purgatory.postpone(10_000)
    bench.advance(10_499)
    assert operation.history == []
    assert bench.purgatory.waiting_count == 1
    bench.advance(10_500)
    assert operation.history == ["expire", "complete"]


def test_an_event_completes_exactly_once() -> None:
    bench = Bench()
    operation = bench.wait("k", "l")
    assert bench.purgatory.check_and_complete("k") == 0
    operation.can_complete = True
    assert bench.purgatory.check_and_complete("k") == 1
    assert bench.purgatory.check_and_complete("k") == 0
    assert bench.purgatory.check_and_complete("l") == 0
    bench.advance(1_000)
    assert operation.history == ["complete"]
    assert not operation.complete()


def test_the_time_out_completes_exactly_once_and_is_marked_as_expired() -> None:
    bench = Bench()
    operation = bench.wait("k", timeout_ms=500)
    bench.advance(499)
    assert operation.history == []
    bench.advance(500)
    operation.can_complete = True
    assert bench.purgatory.check_and_complete("k") == 0
    assert operation.history == ["expire", "complete"]


def test_completion_takes_it_off_every_key() -> None:
    bench = Bench()
    operation = bench.wait("k", "l", "k")
    other = bench.wait("l")
    operation.can_complete = True
    bench.purgatory.check_and_complete("k")
    assert bench.purgatory.watcher_count("k") == 0
    assert bench.purgatory.watcher_count("l") == 1
    assert bench.purgatory.waiting_count == 1
    assert other.history == []


def test_an_operation_that_completes_another_of_its_key_does_not_complete_it_twice() -> None:
    class Chained(Operation):
        other: Operation

        def on_complete(self) -> None:
            super().on_complete()
            self.other.complete()

    bench = Bench()
    first, second = Chained(), Operation()
    first.other, second.can_complete = second, False
    for operation in (first, second):
        bench.purgatory.try_complete_else_watch(operation, ["k"], timeout_ms=5, now_ms=0)
    first.can_complete = second.can_complete = True
    assert bench.purgatory.check_and_complete("k") == 1
    assert (first.history, second.history) == (["complete"], ["complete"])


def test_a_shutdown_lets_all_expire() -> None:
    bench = Bench()
    operations = [bench.wait("k", number) for number in range(3)]
    assert bench.purgatory.expire_all() == 3
    assert all(operation.history == ["expire", "complete"] for operation in operations)
    assert bench.wheel.next_deadline_ms() is None


@pytest.mark.parametrize("key_count", [1, 1_000_000], ids=["one hot key", "a key each"])
def test_add_cancel_and_completion_take_the_same_steps_with_a_hundred_thousand_waiting(key_count: int) -> None:
    def steps_with(waiting_count: int) -> list[int]:
        bench, rng = Bench(), random.Random(5)
        waiting = [
            bench.wait(number % key_count, timeout_ms=rng.randrange(10, 90_000)) for number in range(waiting_count)
        ]
        bench.wait("mine", timeout_ms=1)
        bench.wait("far", timeout_ms=300_000)
        operations: list[Operation] = []
        add = count_steps(lambda: operations.append(bench.wait("mine", 0, timeout_ms=500)))
        operations[0].can_complete = True
        complete = count_steps(lambda: bench.purgatory.check_and_complete("mine"))
        cancel = count_steps(waiting[50].complete)
        bench.wait(0, "mine", timeout_ms=2)
        expire = count_steps(lambda: bench.advance(2))
        return [add, complete, cancel, expire]

    *few, few_expire = steps_with(100)
    *many, many_expire = steps_with(100_000)
    assert few == many
    assert many_expire <= few_expire  # with few, a slot that a cancellation emptied is passed over
