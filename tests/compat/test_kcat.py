"""kcat against a broker process."""

import json


def test_kcat_reads_what_it_wrote(run_kcat, bootstrap, topic):
    run_kcat("-b", bootstrap, "-P", "-t", topic, "-p", "0", "-K", ":", "-z", "snappy", stdin="a:1\nb:2\nc:3\n")
    read = run_kcat("-b", bootstrap, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%o %k %s\n")
    assert read == "0 a 1\n1 b 2\n2 c 3\n"


def test_kcat_lists_the_cluster(run_kcat, server, bootstrap, topic):
    run_kcat("-b", bootstrap, "-P", "-t", topic, stdin="x\n")
    cluster = json.loads(run_kcat("-b", bootstrap, "-L", "-J"))
    assert [broker["name"] for broker in cluster["brokers"]] == [f"127.0.0.1:{server.port}"]
    assert topic in [listed["topic"] for listed in cluster["topics"]]


def test_kcat_looks_up_an_offset_by_time(run_kcat, bootstrap, topic):
    run_kcat("-b", bootstrap, "-P", "-t", topic, "-p", "0", stdin="1\n2\n")
    assert run_kcat("-b", bootstrap, "-Q", "-t", f"{topic}:0:-1").strip() == f"{topic} [0] offset 2"
