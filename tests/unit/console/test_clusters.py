"""Several clusters in one console: each below its own URLs, with its own settings, and never mixed up."""

import logging

import pytest
from confluent_kafka.admin import AdminClient
from starlette.testclient import TestClient

from kafkapy import Broker
from kafkapy.cli.command_config import NOTHING, CommandConfig, current, used
from kafkapy.cli.console_options import new_parser
from kafkapy.cli.profiles import Profile, ProfileError, Profiles, path_of_profiles, save
from kafkapy.console.app import new_app
from kafkapy.console.main import OptionError, settings_of
from kafkapy.console.settings import Cluster, Settings
from tests.support.console_pages import OWN, csrf_of


@pytest.fixture(scope="module")
def brokers():
    with Broker() as first, Broker(users={"ann": "of ann"}) as second:
        first.create_topics("here")
        second.create_topics("there")
        yield first, second


@pytest.fixture(scope="module")
def page(brokers):
    first, second = brokers
    login = "org.apache.kafka.common.security.plain.PlainLoginModule"
    config = CommandConfig(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{login} required username="ann" password="of ann";',
        }
    )
    others = (Cluster("prod", second.bootstrap_servers, config),)
    settings = Settings(servers=first.bootstrap_servers, name="dev", allow_changes=True, clusters=others)
    with TestClient(new_app(settings), base_url=OWN) as client:
        client.get("/charts")
        yield client


def post(client, path: str, **fields: object):
    return client.post(path, data={"csrf": csrf_of(client), **fields}, headers={"origin": OWN})


def test_each_cluster_has_its_own_pages(page) -> None:
    assert "there" not in page.get("/topics").text.partition("<table")[2]
    assert "there" in page.get("/c/prod/topics").text.partition("<table")[2]
    assert page.get("/c/prod/topic?name=here").status_code == 404
    for path in ("/", "/groups", "/brokers", "/access", "/transactions", "/charts", "/topic/messages?name=there"):
        assert page.get(f"/c/prod{path}").status_code == 200, path
    assert "Nothing to look through" in page.get("/c/prod/stream?name=there").text
    assert page.get("/c/none/topics").status_code == 404


def test_links_stay_within_the_cluster(page) -> None:
    shown = page.get("/c/prod/topics").text
    assert 'href="/c/prod/topic?name=there"' in shown
    assert 'hx-get="/c/prod/topics"' in shown
    assert 'href="/static/console.css"' in shown
    assert 'action="/c/prod/change/create-topic"' in shown
    assert 'aria-current="page">Topics' in shown
    others = [part.partition('"')[0] for part in shown.split('href="')[1:]]
    assert [each for each in others if not each.startswith(("/c/", "/static/", "#"))] == []
    assert 'href="/topic?name=here"' in page.get("/topics").text


def test_the_other_cluster_is_one_link_away(page) -> None:
    for path in ("/topics", "/c/prod/topics"):
        shown = page.get(path).text
        assert 'href="/c/"' in shown
        assert 'href="/c/prod/"' in shown
    assert page.get("/c/", follow_redirects=False).headers["location"] == "/"


def test_a_change_is_made_where_it_was_asked_and_the_log_says_where(page, brokers, caplog) -> None:
    caplog.set_level(logging.INFO, logger="kafkapy.console.changes")
    done = post(page, "/c/prod/change/create-topic", name="made", confirmed=1)
    assert done.url.path == "/c/prod/topic"
    assert " in prod: 'Create the topic made." in caplog.text
    assert "made" not in AdminClient(brokers[0].client_config()).list_topics().topics
    assert page.get("/c/prod/topic?name=made").status_code == 200
    post(page, "/change/create-topic", name="made-here", confirmed=1)
    assert " in dev: 'Create the topic made-here." in caplog.text


def test_the_log_says_where_records_were_loaded(page, caplog) -> None:
    caplog.set_level(logging.INFO, logger="kafkapy.console.changes")
    headers = {"origin": OWN, "x-csrf-token": csrf_of(page)}
    assert page.post("/c/prod/load?name=there", content="{}", headers=headers).json()["sent"] == 1
    assert " in prod: 'Load 1 records into there.'" in caplog.text
    assert page.post("/load?name=there", content="{}", headers=headers).status_code == 400
    assert " in dev: 'Load records.': 'There is no topic there.'" in caplog.text


def test_a_context_has_the_settings_of_its_cluster() -> None:
    config = CommandConfig({"client.id": "x"})
    with used(config):
        assert current() is config
    assert current() is NOTHING


def test_clusters_are_named_by_profiles(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = tmp_path / "prod.properties"
    file.write_text("client.id=x\n")
    known = {"prod": Profile("b1:9092", str(file)), "test": Profile("b2:9092")}
    save(path_of_profiles({"XDG_CONFIG_HOME": str(tmp_path)}), Profiles(known))

    def parsed(*arguments: str) -> Settings:
        return settings_of(new_parser().parse_args(arguments))

    found = parsed("--cluster", "prod", "--cluster", "test").clusters
    assert [(each.name, each.servers) for each in found] == [("prod", "b1:9092"), ("test", "b2:9092")]
    assert found[0].config.librdkafka() == {"client.id": "x"}
    with pytest.raises(ProfileError, match="no profile is called 'prdo'"):
        parsed("--cluster", "prdo")
    with pytest.raises(OptionError, match="twice"):
        parsed("--cluster", "prod", "--cluster", "prod")
