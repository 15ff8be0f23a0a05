"""A member of a share group in a process of its own, to be killed.

    python -m tests.support.share_worker SERVERS NAME GROUP LOCK_S

The group reads the topic of its name. It acknowledges by chance: accepts most records, releases or rejects some, and
sleeps through its lock now and then.
Each event is a line of JSON on standard output, by the clock that all processes of the machine share.
"""

import json
import sys
import time
from random import Random
from typing import Any

from confluent_kafka import AcknowledgeType, KafkaException, ShareConsumer

CHOICES = ("accept",) * 8 + ("release", "reject")
TYPES = {"accept": AcknowledgeType.ACCEPT, "release": AcknowledgeType.RELEASE, "reject": AcknowledgeType.REJECT}


def say(**event: Any) -> None:
    print(json.dumps(event), flush=True)


def main(servers: str, name: str, group: str, lock_s: str) -> None:
    dice = Random(name)
    settings = {"bootstrap.servers": servers, "group.id": group, "log_level": 0}
    consumer = ShareConsumer({**settings, "share.acknowledgement.mode": "explicit"})
    consumer.subscribe([group])
    while True:
        asked_s = time.monotonic()
        messages = [each for each in consumer.poll(0.2) or () if each.error() is None]
        got_s = time.monotonic()
        for each in messages:
            say(
                begin_s=asked_s, end_s=got_s, member=name, act="delivered",
                place=[each.partition(), each.offset()], delivery_count=each.delivery_count(),
            )  # fmt: skip
        if not messages:
            continue
        if dice.random() < 0.05:
            time.sleep(float(lock_s) * 1.5)
        chosen = {(each.partition(), each.offset()): dice.choice(CHOICES) for each in messages}
        for each in messages:
            consumer.acknowledge(each, TYPES[chosen[each.partition(), each.offset()]])
        sent_s = time.monotonic()
        try:
            outcomes = {each.partition: error for each, error in consumer.commit_sync(20.0).items()}
        except KafkaException:
            outcomes = {}
        for place, choice in chosen.items():
            is_done = place[0] in outcomes and outcomes[place[0]] is None
            say(begin_s=sent_s, end_s=time.monotonic(), member=name, act=choice if is_done else "unknown", place=place)


if __name__ == "__main__":
    main(*sys.argv[1:5])
