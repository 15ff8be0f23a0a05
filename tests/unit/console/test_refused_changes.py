"""Changes that the cluster or the console refuses: the fields come back with the reason, and Cancel leads back."""

import pytest
from starlette.testclient import TestClient

from kafkapy import Broker
from kafkapy.console.app import new_app
from kafkapy.console.settings import Settings
from tests.support.console_pages import OWN, csrf_of, post, sessions_of

HTML = {"origin": OWN, "accept": "text/html"}


@pytest.fixture(scope="module")
def broker():
    with Broker() as running:
        running.create_topics("orders")
        running.create_topics("compacted", configs={"cleanup.policy": "compact"})
        yield running


@pytest.fixture
def page(broker):
    settings = Settings(servers=broker.bootstrap_servers, allow_changes=True, masks=("orders:$.card",))
    with TestClient(new_app(settings), base_url=OWN) as client:
        client.get("/charts")
        yield client


def sent_from(client, where: str, kind: str, **fields: object):
    return client.post(
        f"/change/{kind}", data={"csrf": csrf_of(client), **fields}, headers={**HTML, "referer": OWN + where}
    )


def test_what_the_cluster_refuses_comes_back_with_its_fields_and_a_hint(page) -> None:
    refused = post(page, "create-topic", name="made", partitions="2", configs="retention.ms=1h", confirmed=1)
    assert (refused.status_code, "INVALID_CONFIG" in refused.text) == (502, True)
    assert "retention.ms is in milliseconds: retention.ms=3600000" in refused.text
    assert ">\nretention.ms=1h</textarea>" in refused.text
    assert '<input name="partitions" value="2">' in refused.text
    assert 'name="confirmed"' not in refused.text, "it is asked again"
    again = post(page, "create-topic", name="made", partitions="2", configs="retention.ms=3600000", confirmed=1)
    assert again.url.params.get("done") == "Created made."


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("segment.bytes", "10MB", "segment.bytes is in bytes: segment.bytes=10485760"),
        ("retentoin.ms", "1", "Did you mean retention.ms or "),
    ],
)
def test_a_config_is_refused_with_what_it_may_have_meant(page, key, value, said) -> None:
    refused = post(page, "set-config", name="orders", key=key, value=value, confirmed=1)
    assert (refused.status_code, said in refused.text) == (502, True), refused.text


def test_what_the_console_refuses_comes_back_with_its_fields(page) -> None:
    refused = post(page, "set-quota", key="producer_byte_rate", client_id="shop", value="1MB")
    assert (refused.status_code, "1MB is no number" in refused.text) == (400, True)
    assert '<input name="client_id" value="shop">' in refused.text
    assert "<h1>Not done</h1>" in refused.text


def test_a_line_that_is_no_config_is_refused_whatever_its_name(page) -> None:
    refused = post(page, "create-topic", name="a", configs="INVALID_CONFIG")
    assert (refused.status_code, ">\nINVALID_CONFIG</textarea>" in refused.text) == (400, True)


def test_a_record_that_the_broker_refuses_is_said(page) -> None:
    refused = post(page, "produce", name="compacted", null_key="1", value="x", confirmed=1)
    assert (refused.status_code, "(INVALID_RECORD)" in refused.text) == (502, True)
    assert "<h1>Failed</h1>" in refused.text, "a change that was begun may have been made in part"


def test_cancel_leads_to_the_page_that_had_the_form(page) -> None:
    asked = sent_from(page, "/topics?q=a%26b&done=Deleted+x.", "create-topic", name="not-there-yet").text
    assert 'href="/topics?q=a%26b">Cancel' in asked, "what was done is not said again"
    sent = {"name": "orders", "came_from": "/topics?q=a"}
    refused = sent_from(page, "/change/create-topic", "create-topic", **sent, confirmed=1).text
    assert 'href="/topics?q=a">Back' in refused


@pytest.mark.parametrize(
    "elsewhere",
    ["//evil.example/x", "/\\evil.example/x", "/\t/evil.example/x", "https://evil.example/", "javascript:alert(1)"],
)
def test_cancel_leads_to_no_other_site(page, elsewhere) -> None:
    asked = post(page, "create-topic", name="a", came_from=elsewhere).text
    assert "Yes, do it" in asked
    assert f'href="{elsewhere}' not in asked


def test_a_referer_that_is_no_url_leads_nowhere(page) -> None:
    fields = {"csrf": csrf_of(page), "name": "a"}
    asked = page.post("/change/create-topic", data=fields, headers={**HTML, "referer": "http://["})
    assert (asked.status_code, 'href="/topic?name=a">Cancel' in asked.text) == (200, True)


@pytest.mark.parametrize(("referer", "field"), [("/topics?q=a", ""), ("/change/create-topic", "/topics?q=a")])
def test_a_form_of_before_a_restart_leads_back_to_its_page(page, referer, field) -> None:
    sent = {"csrf": "of another process", "name": "a", "came_from": field}
    stale = page.post("/change/create-topic", data=sent, headers={**HTML, "referer": OWN + referer})
    assert (stale.status_code, "Nothing was changed." in stale.text) == (403, True)
    assert 'href="/topics?q=a">Load its page again' in stale.text
    assert sessions_of(page).csrf_token("") not in stale.text


def test_a_masked_record_is_not_offered_to_be_produced_again(broker, page) -> None:
    post(page, "produce", name="orders", value='{"card": "1234"}', confirmed=1)
    post(page, "produce", name="compacted", key="k", value='{"card": "1234"}', confirmed=1)
    masked = page.get("/stream?name=orders&from=beginning").text
    assert ("•••" in masked, "1234" in masked, "Produce again" in masked) == (True, False, False)
    assert "Produce again" in page.get("/stream?name=compacted&from=beginning").text
