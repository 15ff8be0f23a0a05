"""The broker that a console was started with stops: the pages go on by those that the cluster has named."""

import re
from contextlib import closing

import pytest
from starlette.testclient import TestClient

from kafkapy import Broker, Cluster
from kafkapy.console.app import new_app
from kafkapy.console.brokers import Brokers, NoResponse
from kafkapy.console.settings import Settings
from kafkapy.console.topics import LATEST, offsets
from kafkapy.protocol.messages.describe_cluster_request import DescribeClusterRequest
from kafkapy.protocol.messages.describe_log_dirs_request import DescribeLogDirsRequest
from tests.support.console_pages import OWN
from tests.support.eventually import eventually

PAGES = ("/", "/topics", "/topic?name=orders", "/brokers", "/groups", "/transactions", "/topic/messages?name=orders")


def test_pages_go_on_without_the_broker_of_the_command_line() -> None:
    with Cluster(3, in_process=True) as cluster:
        cluster.create_topics("orders", partitions=3)
        first = cluster.bootstrap_servers.split(",")[0]
        with TestClient(new_app(Settings(servers=first)), base_url=OWN) as page:
            assert {page.get(path).status_code for path in PAGES} == {200}
            cluster.stop(1)

            def lost() -> list[str]:
                return [path for path in PAGES if page.get(path).status_code != 200]

            eventually(lambda: lost() == [])
            assert re.search(r"Brokers\D*2\D", re.sub("<[^>]*>", " ", page.get("/").text))


def test_another_broker_does_not_answer_for_the_one_that_stopped() -> None:
    with Cluster(3, in_process=True) as cluster:
        first = cluster.bootstrap_servers.split(",")[0]
        with closing(Brokers(Settings(servers=first))) as brokers:
            by_address = {f"{each.host}:{each.port}": each.node_id for each in brokers.nodes()}
            cluster.stop(by_address[first])
            answer = brokers.call(None, DescribeClusterRequest(), 0)  # by another broker: its connection is kept
            assert answer.error_code == 0
            with pytest.raises(NoResponse):
                brokers.call(by_address[first], DescribeLogDirsRequest(None), 4)


def test_a_broker_that_hangs_is_found_and_asked_nothing_more() -> None:
    with Cluster(3, in_process=True, network_faults=True) as cluster:
        servers = cluster.bootstrap_servers
        hangs = next(each for each in cluster.broker_ids if cluster.address_of(each) == servers.split(",")[0])
        with closing(Brokers(Settings(servers=servers))) as brokers:
            ids = [each.node_id for each in brokers.nodes()]
            assert brokers.find_silent(ids) == set()
            cluster.client_network.hold(hangs)
            assert [each.node_id for each in brokers.nodes()] == ids, "of another broker"
            assert brokers.find_silent(ids) == {hangs}
            with pytest.raises(NoResponse, match=r"No broker answers at .*: timed out\."):
                brokers.call(hangs, DescribeLogDirsRequest(None), 4)
            cluster.client_network.heal()
            eventually(lambda: brokers.find_silent(ids) == set())


def test_the_only_broker_may_be_slow() -> None:
    with Broker(network_faults=True) as broker, closing(Brokers(Settings(servers=broker.bootstrap_servers))) as brokers:
        broker.network.delay(ms=800)
        assert brokers.find_silent([each.node_id for each in brokers.nodes()]) == set()
        assert brokers.call(1, DescribeLogDirsRequest(None), 4).error_code == 0


def test_the_only_broker_may_be_slow_under_two_names() -> None:
    with Broker(network_faults=True) as broker:
        by_name = broker.bootstrap_servers.replace("127.0.0.1", "localhost")
        with closing(Brokers(Settings(servers=by_name))) as brokers:
            (node,) = brokers.nodes()
            brokers.call(node.node_id, DescribeLogDirsRequest(None), 4)
            broker.network.delay(ms=600)
            assert brokers.call(node.node_id, DescribeLogDirsRequest(None), 4).error_code == 0


def test_brokers_of_a_distant_cluster_are_not_silent() -> None:
    with Cluster(3, in_process=True, network_faults=True) as cluster:
        cluster.client_network.delay(ms=400)
        with closing(Brokers(Settings(servers=cluster.bootstrap_servers))) as brokers:
            first, *others = (each.node_id for each in brokers.nodes())
            assert brokers.find_silent([first, *others]) == set()
            assert brokers.call(first, DescribeLogDirsRequest(None), 4).error_code == 0


def test_a_leader_that_is_no_longer_registered_hides_no_offsets_of_others() -> None:
    with Broker() as broker, closing(Brokers(Settings(servers=broker.bootstrap_servers))) as brokers:
        broker.create_topics("orders", partitions=2)
        topic = brokers.topic("orders")
        topic.partitions[0].leader_id = 99  # as a broker with late metadata has it
        assert len(offsets(brokers, [topic], LATEST)) == 1
