"""The rows of the table of APIs, beside the specs, the handlers and the tables that are made of them."""

import importlib.util
import re
import struct
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.config.node import NodeConfig
from kafkapy.errors import ProtocolError
from kafkapy.handlers import table
from kafkapy.handlers.data import small_produces
from kafkapy.handlers.table import BROKER_APIS, CONTROLLER_APIS, ROWS, Listener
from kafkapy.protocol import api_table
from kafkapy.protocol.api import APIS, request_type, response_type
from kafkapy.protocol.client_connection import newest_version
from kafkapy.protocol.messages.list_groups_request import ListGroupsRequest
from kafkapy.protocol.messages.list_groups_response import ListGroupsResponse
from kafkapy.protocol.serving import ConnectionInfo
from kafkapy.runtime.decoded_requests import DecodedRequests
from kafkapy.serving.router import Router

LIST_GROUPS = 16
HIGHEST = BROKER_APIS[LIST_GROUPS].max_version
KAFKAPY = Path(table.__file__).resolve().parents[1]
GIVES_WAY = re.compile(r"\b(walk\(|Walk\b|\.turns\b)")


def test_versions_of_a_row_have_a_codec() -> None:
    for row in ROWS:
        api = APIS[row.api_key]
        assert api.min_version == row.served_min >= row.listed_min, api.name
        assert row.served_min <= row.max_version <= api.max_stable_version, api.name


def test_rows_are_in_order_and_one_for_each_listener() -> None:
    assert [row.api_key for row in ROWS] == sorted(row.api_key for row in ROWS)
    listeners = {Listener.BROKER: 1, Listener.CONTROLLER: 1, Listener.BOTH: 2}
    assert sum(listeners[row.listener] for row in ROWS) == len(BROKER_APIS) + len(CONTROLLER_APIS)


def test_the_facts_of_a_row_hold_of_its_messages_and_its_handler() -> None:
    for row in ROWS:
        handler = import_module(f"kafkapy.{row.handler}")
        fields = request_type(row.api_key).field_names()
        if row.parking is not None and row.parking.time_limit is not None:
            assert row.parking.time_limit in fields, row
        for levels in row.parts.either if row.parts is not None else ():
            requested, answered = levels[0]
            assert requested in fields, row
            assert answered in response_type(row.api_key).field_names(), row
        assert hasattr(handler, "prepare") == (row.parts is not None and row.parts.is_prepared), row
        source = (KAFKAPY / row.handler.replace(".", "/")).with_suffix(".py").read_text("utf-8")
        assert (GIVES_WAY.search(source) is not None) == row.in_turns, row


def test_what_a_node_asks_of_others_is_no_newer_than_what_it_serves() -> None:
    for row in ROWS:
        if row.is_between_nodes or row.api_key in (1, 18):
            assert newest_version(row.api_key) == row.max_version, APIS[row.api_key].name


def test_small_produces_know_every_version_that_is_served() -> None:
    assert BROKER_APIS[0].max_version == small_produces.LAST_VERSION  # wide_produces.py has it from there


def test_a_spec_that_is_raised_changes_neither_what_is_listed_nor_what_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The codec learns a version of ListGroups; the table, read anew, still ends before it; the router refuses it."""
    raised = HIGHEST + 1
    rows = tuple((*row[:3], raised, raised, *row[5:]) if row[0] == LIST_GROUPS else row for row in api_table.API_ROWS)
    monkeypatch.setattr(api_table, "API_ROWS", rows)
    monkeypatch.setitem(APIS, LIST_GROUPS, APIS[LIST_GROUPS]._replace(max_version=raised, max_stable_version=raised))
    for kind in (ListGroupsRequest, ListGroupsResponse):
        monkeypatch.setattr(kind, "MAX_VERSION", raised)
        monkeypatch.setitem(kind.READERS, raised, kind.READERS[HIGHEST])
        monkeypatch.setitem(kind.WRITERS, raised, kind.WRITERS[HIGHEST])
    assert table.__spec__ is not None
    read_anew = importlib.util.module_from_spec(table.__spec__)
    assert table.__spec__.loader is not None
    monkeypatch.setitem(sys.modules, table.__name__, read_anew)
    table.__spec__.loader.exec_module(read_anew)
    assert read_anew.BROKER_APIS[LIST_GROUPS].max_version == HIGHEST
    assert [row.max_version for row in read_anew.ROWS] == [row.max_version for row in ROWS]

    services: Any = SimpleNamespace(
        apis=BROKER_APIS, telemetry=None, client_quotas=None, decoded=DecodedRequests(), io_pool=None,
        config=SimpleNamespace(node=NodeConfig(node_id=1, process_roles=("broker",))),
    )  # fmt: skip
    frame = struct.pack(">hhih", LIST_GROUPS, raised, 1, -1) + b"\0" + ListGroupsRequest().encode(raised)
    with pytest.raises(ProtocolError, match=f"version {raised} of api key 16 is not served here"):
        Router(services).route(ConnectionInfo("", "", "", "", 0), memoryview(frame)).send(None)
