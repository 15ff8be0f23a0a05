"""The authorizer against Apache Kafka's own responses and audit log (format: tools/record_authorizations.py)."""

import gzip
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kafkapy.metadata.acl_types import Acl, AclOperation, ResourceType
from kafkapy.security.acl_index import Acls
from kafkapy.security.standard_authorizer import Question, StandardAuthorizer

GOLDEN = Path(__file__).parent / "authorizations.txt.gz"


class LastRule:
    """An audit log that keeps the last question's rule."""

    def is_enabled(self, *, is_allowed: bool, is_worth_telling: bool) -> bool:
        return True

    def write(self, question: Question, *, is_worth_telling: bool) -> None:
        self.rule = question.rule


class Replay:
    """Takes the steps of a script and answers its questions."""

    def __init__(self, default: str, super_users: str) -> None:
        self._acls: Acls = {}
        self._ids: dict[Acl, str] = {}
        self._log = LastRule()
        self._authorizer = StandardAuthorizer(
            lambda: self._acls,
            super_users=frozenset(super_users.split(";")),
            allow_everyone_if_no_acl_found=default == "ALLOWED",
            audit_log=self._log,
        )

    def take(self, kind: str, fields: list[str]) -> str:
        """Return the response, "" for a step that is none."""
        if kind == "+":
            self._add(fields[0], fields[1:])
        elif kind == "-":
            self._acls = {key: acl for key, acl in self._acls.items() if key != int(fields[0]).to_bytes(16, "big")}
        elif kind == "=":
            self._acls = dict(self._acls)
        elif kind == "?":
            return self._perform(*fields)
        else:
            principal, host, operation, resource_type = fields
            requester: Any = SimpleNamespace(api_key=0, principal=principal, client_host=host)
            is_allowed = self._authorizer.authorize_by_resource_type(
                requester, AclOperation(int(operation)), ResourceType(int(resource_type))
            )
            return "A" if is_allowed else "D"
        return ""

    def _add(self, acl_id: str, fields: list[str]) -> None:
        resource_type, name, pattern_type, principal, host, operation, permission = fields
        acl = Acl(int(resource_type), name, int(pattern_type), principal, host, int(operation), int(permission))
        key = int(acl_id).to_bytes(16, "big")
        self._acls = {**self._acls, key: acl.record(key)}
        self._ids[acl] = acl_id

    def _perform(self, principal: str, host: str, operation: str, resource_type: str, name: str) -> str:
        requester: Any = SimpleNamespace(api_key=0, principal=principal, client_host=host)
        is_allowed = self._authorizer.authorize(
            requester, AclOperation(int(operation)), ResourceType(int(resource_type)), name
        )
        rule = self._log.rule
        return f"{'A' if is_allowed else 'D'} {str(rule) if rule.acl is None else self._ids[rule.acl]}"


def test_questions_are_answered_as_by_apache_kafka_and_for_the_same_reason() -> None:
    replay = Replay("DENIED", "")
    question_count = 0
    for number, line in enumerate(gzip.decompress(GOLDEN.read_bytes()).decode().splitlines(), 1):
        step, _, expected = line.partition("\t")
        kind, *fields = step.split(" ")
        if kind == "#":
            replay = Replay(*fields)
        else:
            assert replay.take(kind, fields) == expected, f"line {number}: {line}"
            question_count += bool(expected)
    assert question_count == 30_000
