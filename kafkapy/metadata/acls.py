"""The controller's table of ACLs: creating and deleting them (KIP-801). kafkapy.security evaluates them.

Creating an existing ACL succeeds without a record, so equal ACLs never have two ids.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kafkapy.errors import ApiError
from kafkapy.machine import Decision
from kafkapy.metadata.acl_types import (
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
    in_order,
)
from kafkapy.metadata.cidr import range_error
from kafkapy.metadata.features import MV_4_4_IV1, FeatureControl
from kafkapy.metadata.image import MetadataImage
from kafkapy.metadata.limits import MAX_RECORDS_PER_OPERATION, check_operation_size
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.seams import Random
from kafkapy.types import Uuid

if TYPE_CHECKING:
    from kafkapy.protocol.messages.access_control_entry_record import AccessControlEntryRecord
    from kafkapy.protocol.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord

_CONCRETE: Final = frozenset((PatternType.LITERAL, PatternType.PREFIXED))


class AclControl:
    """The ACLs as of the last record. `decide_...` leaves them as they are; `replay...` changes them."""

    def __init__(self, features: FeatureControl, random: Random) -> None:
        self._features = features
        self._random = random
        self._by_id: dict[Uuid, AccessControlEntryRecord] = {}
        self._existing: set[Acl] = set()

    def load(self, image: MetadataImage) -> None:
        self._by_id = dict(image.acls)
        self._existing = {Acl.of(record) for record in image.acls.values()}

    @property
    def by_id(self) -> "Mapping[Uuid, AccessControlEntryRecord]":
        return self._by_id

    def decide_create(self, acls: Sequence[Acl]) -> "Decision[AccessControlEntryRecord, list[ApiError | None]]":
        """Create the valid ACLs that do not exist; the response has an error or None for each.

        Raises ApiError POLICY_VIOLATION for more than MAX_RECORDS_PER_OPERATION records.
        """
        knows_ranges = self._features.metadata_version >= MV_4_4_IV1
        results = [_refusal(acl) or _host_refusal(acl.host, knows_ranges=knows_ranges) for acl in acls]
        missing = dict.fromkeys(
            acl for acl, error in zip(acls, results, strict=True) if error is None and acl not in self._existing
        )
        check_operation_size(len(missing))
        return Decision(results, [acl.record(self._new_id()) for acl in missing], is_atomic=True)

    def decide_delete(
        self, found: Sequence[Sequence[Uuid]]
    ) -> "Decision[RemoveAccessControlEntryRecord, list[list[Acl]]]":
        """Delete ACLs; the response has those that existed, for each sequence of ids, in Kafka's order.

        Raises ApiError INVALID_REQUEST for more than MAX_RECORDS_PER_OPERATION ACLs, and if after as many one is found
        again, as in Apache Kafka; nothing is deleted then.
        """
        from kafkapy.protocol.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord

        present = [[self._by_id[acl_id] for acl_id in ids if acl_id in self._by_id] for ids in found]
        unwanted: dict[Uuid, None] = {}
        for record in itertools.chain.from_iterable(present):
            if len(unwanted) >= MAX_RECORDS_PER_OPERATION:
                message = f"Cannot remove more than {MAX_RECORDS_PER_OPERATION} acls in a single delete operation."
                raise ApiError(ErrorCode.INVALID_REQUEST, message)
            unwanted[record.id] = None
        deleted = [in_order([Acl.of(record) for record in records]) for records in present]
        return Decision(deleted, [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in unwanted], is_atomic=True)

    def replay(self, record: "AccessControlEntryRecord") -> None:
        assert record.id not in self._by_id, "an ACL is added twice"
        self._by_id[record.id] = record
        self._existing.add(Acl.of(record))

    def replay_remove(self, record: "RemoveAccessControlEntryRecord") -> None:
        removed = self._by_id.pop(record.id, None)
        assert removed is not None, "an ACL is removed that does not exist"
        self._existing.discard(Acl.of(removed))

    def _new_id(self) -> Uuid:
        acl_id = self._random.uuid()
        while acl_id in self._by_id:
            acl_id = self._random.uuid()
        return acl_id


def find_acls(acls: "Mapping[Uuid, AccessControlEntryRecord]", requested: AclFilter) -> list[Uuid]:
    """Return the ids of all ACLs that a filter matches. Raises ApiError for an unknown code in the filter."""
    unknown = _unknown_part(requested)
    if unknown:
        raise ApiError(ErrorCode.INVALID_REQUEST, unknown)
    return [acl_id for acl_id, record in acls.items() if requested.matches(record)]


def _unknown_part(requested: AclFilter) -> str:
    if "UNKNOWN" in (ResourceType(requested.resource_type).name, PatternType(requested.pattern_type).name):
        return "Unknown patternFilter."
    if "UNKNOWN" in (AclOperation(requested.operation).name, PermissionType(requested.permission_type).name):
        return "Unknown entryFilter."
    return ""


def _refusal(acl: Acl) -> ApiError | None:
    """Return why an ACL cannot be created, None if it can."""
    if (name := ResourceType(acl.resource_type).name) in ("UNKNOWN", "ANY"):
        message = f"Invalid resourceType {name}"
    elif acl.pattern_type not in _CONCRETE:
        message = f"Invalid patternType {PatternType(acl.pattern_type).name}"
    elif (name := AclOperation(acl.operation).name) in ("UNKNOWN", "ANY"):
        message = f"Invalid operation {name}"
    elif (name := PermissionType(acl.permission_type).name) in ("UNKNOWN", "ANY"):
        message = f"Invalid permissionType {name}"
    elif not acl.resource_name:
        message = "Resource name should not be empty"
    elif ":" not in acl.principal:
        message = (
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal type "
            "from the principal name)"
        )
    else:
        return None
    return ApiError(ErrorCode.INVALID_REQUEST, message)


def _host_refusal(host: str, *, knows_ranges: bool) -> ApiError | None:
    """Return why an ACL cannot have a host, None if it can: an address, `*` or, if metadata.version has it, a range."""
    if not host:
        return ApiError(ErrorCode.INVALID_REQUEST, "Host pattern cannot be null or empty")
    if "/" not in host:
        return None
    if not knows_ranges:
        message = "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher."
        return ApiError(ErrorCode.UNSUPPORTED_VERSION, message)
    reason = range_error(host)
    if reason is None:
        return None
    return ApiError(ErrorCode.INVALID_REQUEST, f"Invalid CIDR notation '{host}': {reason}")
