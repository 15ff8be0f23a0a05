"""How many files the nodes of an in-process cluster keep open together."""

import subprocess
import sys

PROGRAM = """
import resource

_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (450, hard))

from confluent_kafka import Producer

from kafkapy import Cluster

properties = {"num.partitions": 60, "default.replication.factor": 3}
errors = []
with Cluster(3, in_process=True, properties=properties) as cluster:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "message.timeout.ms": 60_000})
    for number in range(600):
        producer.produce("t", b"value", str(number), on_delivery=lambda error, message: error and errors.append(error))
    print(producer.flush(60), errors)
"""


def test_the_nodes_of_a_process_share_its_descriptors() -> None:
    """Three nodes, 60 partitions, three files each: 540, where the process may have 450 descriptors."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("0 []\n", 0), done.stderr
