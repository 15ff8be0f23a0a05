"""Changes of users, ACLs, quotas, replicas, leaders, members and transactions.

Versions: CreateAcls 2, DeleteAcls 2, AlterClientQuotas 1, AlterUserScramCredentials by librdkafka,
AlterPartitionReassignments 0, ElectLeaders 2, LeaveGroup 4: with them Apache Kafka 2.7 and later.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from kafkapy.cli.client import confluent
from kafkapy.cli.deadline import TIMEOUT_S
from kafkapy.console import access, other_groups, transactions
from kafkapy.console.access import Acl
from kafkapy.console.brokers import BadRequest, ClusterError, check
from kafkapy.console.change import Change, Fields
from kafkapy.console.client import all_done
from kafkapy.console.fields import choice, number
from kafkapy.console.queries import group_name, topic_name, transactional_id
from kafkapy.console.render import link
from kafkapy.console.rules import WORDS, in_words
from kafkapy.console.state import Console
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from kafkapy.protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkapy.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from kafkapy.protocol.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from kafkapy.protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from kafkapy.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from kafkapy.types import INT32_MAX, INT64_MAX, TopicPartition

QUOTAS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
MAX_NAME: Final = 249
"""Characters of a topic's name, as Apache Kafka has it; other names get the same bound."""
PREFERRED: Final = 0
TIMEOUT_MS: Final = 8_000
ITERATIONS: Final = 4096


class AdminChanges:
    """Each method checks the fields of a form, and returns the requested change. Raises BadRequest."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def kinds(self) -> Mapping[str, Callable[[Fields], Change]]:
        return {
            "set-user": self.set_user,
            "delete-user": self.delete_user,
            "create-acl": self.create_acl,
            "delete-acl": self.delete_acl,
            "set-quota": self.set_quota,
            "set-replicas": self.set_replicas,
            "elect-leaders": self.elect_leaders,
            "remove-member": self.remove_member,
            "abort-transaction": self.abort_transaction,
            "abort-hanging": self.abort_hanging,
        }

    # -- users, ACLs, quotas ----------------------------------------------------------------------------------------

    def set_user(self, fields: Fields) -> Change:
        name, mechanism = _name(fields, "user"), choice(fields, "mechanism", access.MECHANISMS.values())
        password = fields.get("password", "")

        def run() -> None:
            if not password:
                raise BadRequest("password: it is empty.")
            admin = confluent().admin
            credential = admin.ScramCredentialInfo(_scram(mechanism), ITERATIONS)
            wanted = admin.UserScramCredentialUpsertion(name, credential, password.encode())
            self._alter_user(wanted)

        lines = (f"It logs in by {mechanism}; a password that it had for this is replaced.",)
        return Change(
            f"Set the password of the user {name}.", lines, run, f"Set {name}.", "/access", asks_password=True
        )

    def delete_user(self, fields: Fields) -> Change:
        name, mechanism = _name(fields, "user"), choice(fields, "mechanism", access.MECHANISMS.values())

        def run() -> None:
            self._alter_user(confluent().admin.UserScramCredentialDeletion(name, _scram(mechanism)))

        lines = ("Its connections stay until they log in again.", "ACLs and quotas that name it stay.")
        title = f"Delete the password of the user {name} for {mechanism}."
        return Change(title, lines, run, f"Deleted {name}.", "/access", type_name=name)

    def _alter_user(self, alteration: Any) -> None:
        futures = self._console.clients.admin().alter_user_scram_credentials([alteration], request_timeout=TIMEOUT_S)
        all_done(futures)

    def create_acl(self, fields: Fields) -> Change:
        rule = _rule(fields)
        known = [operation for resource_type, operation in WORDS if resource_type == rule.resource_type]
        if rule.operation not in ("all", *known):
            raise BadRequest(f"operation: of a {rule.resource_type} there are all, {', '.join(known)}.")

        def run() -> None:
            creation = AclCreation(
                _code(access.RESOURCE_TYPES, rule.resource_type),
                resource_name=rule.resource,
                resource_pattern_type=_code(access.PATTERN_TYPES, rule.pattern),
                principal=rule.principal,
                host=rule.host,
                operation=_code(access.OPERATIONS, rule.operation),
                permission_type=_code(access.PERMISSIONS, rule.permission),
            )
            (result,) = self._console.brokers.call(None, CreateAclsRequest([creation]), 2).results
            check(result.error_code, result.error_message)

        lines = (
            f"{in_words(rule)}.",
            *(("A rule that denies wins over all that allow.",) * (rule.permission == "deny")),
        )
        return Change("Add an ACL.", lines, run, "Added the ACL.", "/access")

    def delete_acl(self, fields: Fields) -> Change:
        rule = _rule(fields)

        def run() -> None:
            wanted = DeleteAclsFilter(
                _code(access.RESOURCE_TYPES, rule.resource_type),
                resource_name_filter=rule.resource,
                pattern_type_filter=_code(access.PATTERN_TYPES, rule.pattern),
                principal_filter=rule.principal,
                host_filter=rule.host,
                operation=_code(access.OPERATIONS, rule.operation),
                permission_type=_code(access.PERMISSIONS, rule.permission),
            )
            (result,) = self._console.brokers.call(None, DeleteAclsRequest([wanted]), 2).filter_results
            check(result.error_code, result.error_message)
            if not result.matching_acls:
                raise ClusterError("There is no such ACL any more.")

        lines = (
            f"No longer: {in_words(rule)}.",
            "If it was the last one of its resource, only super users may use that.",
        )
        return Change("Delete an ACL.", lines, run, "Deleted the ACL.", "/access")

    def set_quota(self, fields: Fields) -> Change:
        key = choice(fields, "key", QUOTAS)
        value = _quota(fields.get("value", ""))
        entity = {
            each: None if name == "<default>" else name
            for each in access.ENTITY_TYPES
            if (name := fields.get(each.replace("-", "_"), "").strip())
        }
        if not entity:
            raise BadRequest("A quota is of a user, a client id or an address.")

        def run() -> None:
            operation = OpData(key, value=value or 0.0, remove=value is None)
            named = [EntityData(each, entity_name=name) for each, name in entity.items()]
            entry = EntryData(named, ops=[operation])
            (result,) = self._console.brokers.call(None, AlterClientQuotasRequest([entry]), 1).entries
            check(result.error_code, result.error_message)

        whose = ", ".join(f"{each} {'(default)' if name is None else name}" for each, name in entity.items())
        line = f"{key} is removed." if value is None else f"{key} = {value:.15g}"
        return Change(f"Set a quota of {whose}.", (line,), run, f"Set {key}.", "/access")

    # -- replicas and leaders ---------------------------------------------------------------------------------------

    def set_replicas(self, fields: Fields) -> Change:
        name = topic_name(fields)
        topic = self._console.brokers.topic(name)
        replicas = _brokers(fields.get("replicas", ""))
        only = fields.get("partition", "").strip()
        numbers = sorted(each.partition_index for each in topic.partitions)
        if only:
            numbers = [number(fields, "partition", 0, 0, INT32_MAX)]
        before = {each.partition_index: list(each.replica_nodes) for each in topic.partitions}
        if not set(numbers) <= set(before):
            raise BadRequest(f"partition: {name} has no partition {only}.")
        known = {each.node_id for each in self._console.brokers.nodes()}
        if not set(replicas) <= known:
            raise BadRequest(f"replicas: the brokers are {', '.join(map(str, sorted(known)))}.")
        # With one list for all partitions its first broker would lead all of them: each begins one broker further.
        plan = {each: _rotated(replicas, 0 if only else each) for each in numbers}

        def run() -> None:
            partitions = [ReassignablePartition(each, replicas=wanted) for each, wanted in plan.items()]
            request = AlterPartitionReassignmentsRequest(
                TIMEOUT_MS, topics=[ReassignableTopic(name, partitions=partitions)]
            )
            response = self._console.brokers.call(None, request, 0)
            check(response.error_code, response.error_message)
            for result in response.responses[0].partitions:
                check(result.error_code, result.error_message)

        plan = {each: wanted for each, wanted in plan.items() if wanted != before[each]}
        if not plan:
            raise BadRequest(f"replicas: {name} has them in this order.")
        lines = (
            *(f"{name}-{each}: {_listed(before[each])} → {_listed(wanted)}" for each, wanted in plan.items()),
            "New replicas copy the records first, old ones go then. The first one is the preferred leader.",
        )
        return Change(f"Move replicas of {name}.", lines, run, "The replicas move.", link("/topic", name=name))

    def elect_leaders(self, fields: Fields) -> Change:
        name = topic_name(fields)
        topic = self._console.brokers.topic(name)
        led_by_others = [each for each in topic.partitions if each.leader_id != each.replica_nodes[0]]
        others = [each for each in led_by_others if each.replica_nodes[0] in each.isr_nodes]
        behind = [each for each in led_by_others if each.replica_nodes[0] not in each.isr_nodes]

        def run() -> None:
            numbers = [each.partition_index for each in others]
            wanted = [TopicPartitions(name, partitions=numbers)]
            response = self._console.brokers.call(
                None, ElectLeadersRequest(PREFERRED, topic_partitions=wanted, timeout_ms=TIMEOUT_MS), 2
            )
            check(response.error_code)
            results = [each for of_topic in response.replica_election_results for each in of_topic.partition_result]
            failed = [each for each in results if each.error_code not in (0, ErrorCode.ELECTION_NOT_NEEDED)]
            if failed:
                which = ", ".join(f"{name}-{each.partition_id} ({ErrorCode(each.error_code).name})" for each in failed)
                raise ClusterError(f"Elected leaders of {len(results) - len(failed)} partitions, but not of {which}.")

        lines = tuple(
            f"{name}-{each.partition_index}: {each.leader_id} → {each.replica_nodes[0]}" for each in others
        ) + tuple(f"{name}-{each.partition_index}: stays, {each.replica_nodes[0]} is not in sync." for each in behind)
        if not led_by_others:
            raise BadRequest(f"Each partition of {name} is led by its preferred leader.")
        if not others:
            raise BadRequest(f"No preferred leader of {name} is in sync: wait until its replicas are.")
        return Change(f"Let preferred leaders lead {name}.", lines, run, "Elected.", link("/topic", name=name))

    # -- groups and transactions ------------------------------------------------------------------------------------

    def remove_member(self, fields: Fields) -> Change:
        name, member_id = group_name(fields), fields.get("member", "")
        if not 0 < len(member_id) <= 1000:
            raise BadRequest("member: its id has 1 to 1000 characters.")

        def run() -> None:
            coordinator = other_groups.coordinator_of(self._console.brokers, name)
            request = LeaveGroupRequest(name, members=[MemberIdentity(member_id)])
            response = self._console.brokers.call(coordinator, request, 4)
            check(response.error_code)
            for result in response.members:
                check(result.error_code)

        lines = ("The others take over its partitions.", "A client that still runs joins again: stop it first.")
        return Change(f"Remove {member_id} from the group {name}.", lines, run, "Removed.", link("/group", name=name))

    def abort_transaction(self, fields: Fields) -> Change:
        wanted = transactional_id(fields)

        def run() -> None:
            with transactions.transaction_admin(self._console.brokers) as admin:
                admin.terminate(wanted)

        lines = ("What it wrote is not read by consumers of committed records.", "Its producer is fenced: it fails.")
        title = f"Abort the transaction of {wanted}."
        return Change(title, lines, run, "Aborted.", link("/transaction", id=wanted), type_name=wanted)

    def abort_hanging(self, fields: Fields) -> Change:
        """End a hanging transaction: it keeps the last stable offset at its start, and no coordinator knows it."""
        name = topic_name(fields)
        partition = TopicPartition(name, number(fields, "partition", 0, 0, INT32_MAX))
        producer_id = number(fields, "producer_id", -1, 0, INT64_MAX)
        found = transactions.hanging(self._console.brokers, partition, producer_id)

        def run() -> None:
            with transactions.transaction_admin(self._console.brokers) as admin:
                admin.abort(found)

        lines = (
            f"It is open from offset {found.producer.current_txn_start_offset}; no coordinator knows of it.",
            "What it wrote is not read by consumers of committed records; they read on after it.",
        )
        title = f"Abort the hanging transaction of producer {producer_id} in {partition}."
        back = link("/topic/producers", name=name, partition=partition.partition)
        return Change(title, lines, run, "Aborted.", back, type_name=name)


def _name(fields: Fields, field: str) -> str:
    name = fields.get(field, "").strip()
    if not 0 < len(name) <= MAX_NAME:
        raise BadRequest(f"{field}: 1 to {MAX_NAME} characters.")
    return name


def _code(codes: Mapping[int, str], word: str) -> int:
    return next(code for code, each in codes.items() if each == word)


def _scram(mechanism: str) -> Any:
    return confluent().admin.ScramMechanism[mechanism.replace("-", "_")]


def _rule(fields: Fields) -> Acl:
    """Return the rule that a form describes. Raises BadRequest."""
    resource_type = choice(fields, "resource_type", access.RESOURCE_TYPES.values())
    principal = _name(fields, "principal")
    if ":" not in principal:
        raise BadRequest(f"principal: as User:{principal}.")
    return Acl(
        resource_type,
        "kafka-cluster" if resource_type == "cluster" else _name(fields, "resource"),
        choice(fields, "pattern", access.PATTERN_TYPES.values()),
        principal,
        fields.get("host", "").strip() or "*",
        choice(fields, "operation", access.OPERATIONS.values()),
        choice(fields, "permission", access.PERMISSIONS.values()),
    )


def _quota(text: str) -> float | None:
    """Return a limit, None to remove it. Raises BadRequest."""
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        raise BadRequest(f"value: {text[:50]} is no number.") from None
    if not math.isfinite(value) or value <= 0:
        raise BadRequest("value: more than 0; empty removes the quota.")
    return value


def _brokers(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or len(parts) > 100 or not all(part.isdecimal() and len(part) < 10 for part in parts):
        raise BadRequest("replicas: ids of brokers with commas between them, the preferred leader first.")
    found = [int(part) for part in parts]
    if len(set(found)) < len(found):
        raise BadRequest("replicas: a broker is there twice.")
    return found


def _rotated(replicas: list[int], by: int) -> list[int]:
    """Return the replicas of one partition of many, rotated, so that the leaders are spread."""
    by %= len(replicas)
    return replicas[by:] + replicas[:by]


def _listed(replicas: list[int]) -> str:
    return ", ".join(map(str, replicas))
