"""`python -m benchmarks.snapshot_start`: how long a `Broker` takes to start with the data of a snapshot.

The snapshot has 10 topics with 10,000 records each. Of each start: time on the clock, CPU of the process, and how often
its threads waited. The first start of the process imports the broker, and is not counted.
"""

import resource
import statistics
import sys
import time

from confluent_kafka import Producer

from kafkapy import Broker
from kafkapy.testing import Snapshot

TOPICS = [f"topic-{number}" for number in range(10)]
RECORDS = 10_000
STARTS = 20
BATCH = 1000
TIMEOUT_S = 120


def filled() -> Snapshot:
    """Return a snapshot of topics with records."""
    with Broker() as broker:
        broker.create_topics(*TOPICS, partitions=1)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        for topic in TOPICS:
            for number in range(RECORDS):
                producer.produce(topic, b"record %d" % number)
                if number % BATCH == 0:
                    producer.poll(0)
            assert producer.flush(TIMEOUT_S) == 0, "all records are delivered"
        return broker.snapshot()


def start(snapshot: Snapshot) -> tuple[float, float, int]:
    """Return the milliseconds of one start on the clock and of CPU, and how often a thread waited."""
    waited = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
    began, cpu = time.perf_counter(), time.process_time()
    with Broker(snapshot=snapshot):
        found = 1000 * (time.perf_counter() - began), 1000 * (time.process_time() - cpu)
        return *found, resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - waited


def main() -> None:
    snapshot = filled()
    starts = [start(snapshot) for _ in range(STARTS)]
    for name, index in (("ms on the clock", 0), ("ms of CPU", 1), ("waits of threads", 2)):
        values = sorted(each[index] for each in starts)
        sys.stdout.write(f"{name}: {statistics.median(values):.1f}, {values[0]:.1f} to {values[-1]:.1f}\n")


if __name__ == "__main__":
    main()
