"""Which nodes a cluster on one machine consists of, and what is kept of it."""

from pathlib import Path

import pytest

from kafkapy.config.load import load
from kafkapy.config.properties import format_properties
from kafkapy.private_file import write_private
from kafkapy.server.cluster.plan import BROKER, COMBINED, CONTROLLER, ClusterError, ClusterPlan, free_ports, new_plan

ROLES = [  # brokers, controllers of their own -> (node id, roles)
    (1, 0, [(1, COMBINED)]),
    (2, 0, [(1, COMBINED), (2, BROKER)]),
    (4, 0, [(1, COMBINED), (2, COMBINED), (3, COMBINED), (4, BROKER)]),
    (2, 1, [(1, BROKER), (2, BROKER), (101, CONTROLLER)]),
]


@pytest.mark.parametrize(("brokers", "controllers", "expected"), ROLES)
def test_the_first_brokers_are_controllers_unless_there_are_controllers_of_their_own(
    brokers: int, controllers: int, expected: list[tuple[int, str]]
) -> None:
    plan = new_plan("id", brokers, controllers, {})
    assert [(node.node_id, node.roles) for node in plan.nodes] == expected
    ports = [port for node in plan.nodes for port in (node.port, node.controller_port) if port]
    assert len(set(ports)) == len(ports) == brokers + len(plan.controllers)


@pytest.mark.parametrize("controllers", [0, 2])
def test_each_node_has_a_configuration_that_is_valid(controllers: int) -> None:
    plan = new_plan("id", 3, controllers, {"num.partitions": "7"})
    for node in plan.nodes:
        config, _ = load(plan.properties_of(node, f"/logs/{node.node_id}"))
        assert (config.node_id, config.is_broker) == (node.node_id, node.is_broker)
        assert config.value("num.partitions") == 7
        assert len(config.quorum_bootstrap_servers) == len(plan.controllers)


def test_internal_topics_have_as_many_replicas_as_there_are_brokers_and_three_at_most() -> None:
    factors = [new_plan("id", count, 0, {}).properties["offsets.topic.replication.factor"] for count in (1, 2, 3, 4)]
    assert factors == ["1", "2", "3", "3"]


def test_topics_survive_the_loss_of_one_of_three_brokers() -> None:
    keys = ("default.replication.factor", "min.insync.replicas")
    made = [[new_plan("id", count, 0, {}).properties[key] for key in keys] for count in (1, 2, 3, 4)]
    assert made == [["1", "1"], ["2", "1"], ["3", "2"], ["3", "2"]]
    given = new_plan("id", 3, 0, {"default.replication.factor": "1"})
    assert [given.properties[key] for key in keys] == ["1", "2"]


def test_a_plan_is_kept(tmp_path: Path) -> None:
    plan = new_plan("id", 2, 1, {"num.partitions": "7"})
    plan.save(tmp_path)
    assert ClusterPlan.load(tmp_path) == plan


def test_a_directory_without_a_cluster_and_one_that_is_damaged_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="kafkapy cluster up --data-dir"):
        ClusterPlan.load(tmp_path)
    (tmp_path / "cluster.json").write_text('{"version": 1}')
    with pytest.raises(ClusterError, match="restore it, or start again"):
        ClusterPlan.load(tmp_path)


@pytest.mark.parametrize("key", ["node.id", "listeners", "log.dirs"])
def test_keys_that_differ_from_node_to_node_are_refused(key: str) -> None:
    with pytest.raises(ClusterError, match=f"{key} differs from node to node"):
        new_plan("id", 1, 0, {key: "1"})


def test_a_port_that_is_in_use_is_named() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ClusterError, match=f"port {port} cannot be used: --port takes another"):
            new_plan("id", 1, 0, {}, first_port=port)


def test_brokers_follow_the_first_port() -> None:
    (port,) = free_ports(1)
    assert new_plan("id", 1, 0, {}, first_port=port).bootstrap_servers == f"127.0.0.1:{port}"


@pytest.mark.parametrize("had_it", [False, True])
def test_what_may_hold_passwords_is_its_owners_alone(tmp_path: Path, had_it: bool) -> None:
    plan = new_plan("id", 1, 0, {"ssl.keystore.password": "secret"})
    plan.save(tmp_path)
    assert (tmp_path / "cluster.json").stat().st_mode & 0o777 == 0o600
    properties = tmp_path / "node-1.properties"
    if had_it:
        properties.write_text("")
        properties.chmod(0o644)
    write_private(properties, format_properties({"ssl.keystore.password": "secret"}))
    assert properties.stat().st_mode & 0o777 == 0o600
    assert "secret" in properties.read_text()
