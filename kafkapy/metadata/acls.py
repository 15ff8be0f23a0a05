"""The controller's table of ACLs: which are created and deleted (KIP-801). What they allow, security/ decides.

Creating an ACL that exists succeeds and writes no record, so no two ids stand for equal ACLs.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from kafkapy.dataclass import dataclass
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
    name_of,
)
from kafkapy.metadata.image import MetadataImage
from kafkapy.metadata.limits import MAX_RECORDS_PER_OPERATION, check_operation_size
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.access_control_entry_record import AccessControlEntryRecord
from kafkapy.protocol.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from kafkapy.seams import Random
from kafkapy.types import Uuid

_CONCRETE: Final = frozenset((PatternType.LITERAL, PatternType.PREFIXED))


@dataclass(slots=True)
class DeletedAcls:
    """The ACLs that one filter matched, or why it was refused."""

    acls: Sequence[Acl] = ()
    error: ApiError | None = None


class AclControl:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._by_id: dict[Uuid, AccessControlEntryRecord] = {}
        self._ids: dict[Acl, tuple[Uuid, ...]] = {}

    def load(self, image: MetadataImage) -> None:
        self._by_id = dict(image.acls)
        self._ids = {}
        for record in image.acls.values():
            self._add_id(record)

    @property
    def by_id(self) -> Mapping[Uuid, AccessControlEntryRecord]:
        return self._by_id

    def decide_create(self, acls: Sequence[Acl]) -> Decision[AccessControlEntryRecord, list[ApiError | None]]:
        """Create those that can be and do not exist; answer an error or None for each.

        Raises ApiError POLICY_VIOLATION if that takes more than MAX_RECORDS_PER_OPERATION.
        """
        results = [_refusal(acl) for acl in acls]
        missing = dict.fromkeys(
            acl for acl, error in zip(acls, results, strict=True) if error is None and acl not in self._ids
        )
        check_operation_size(len(missing))
        return Decision(results, [acl.record(self._new_id()) for acl in missing], is_atomic=True)

    def decide_delete(
        self, filters: Sequence[AclFilter]
    ) -> Decision[RemoveAccessControlEntryRecord, list[DeletedAcls]]:
        """Delete all that the filters match; an ACL that several match is told for each of them.

        Raises ApiError INVALID_REQUEST if that is more than MAX_RECORDS_PER_OPERATION: then nothing is deleted.
        """
        unwanted: dict[Uuid, None] = {}
        results = []
        for each in filters:
            if not is_known(each):
                results.append(DeletedAcls(error=ApiError(ErrorCode.INVALID_REQUEST, _unknown_part(each))))
                continue
            matched = self._matching(each)
            unwanted.update((record.id, None) for record in matched)
            if len(unwanted) > MAX_RECORDS_PER_OPERATION:
                message = f"Cannot remove more than {MAX_RECORDS_PER_OPERATION} acls in a single delete operation."
                raise ApiError(ErrorCode.INVALID_REQUEST, message)
            results.append(DeletedAcls(in_order([Acl.of(record) for record in matched])))
        records = [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in unwanted]
        return Decision(results, records, is_atomic=True)

    def replay(self, record: AccessControlEntryRecord) -> None:
        assert record.id not in self._by_id, "an ACL is added twice"
        self._by_id[record.id] = record
        self._add_id(record)

    def replay_remove(self, record: RemoveAccessControlEntryRecord) -> None:
        removed = self._by_id.pop(record.id, None)
        assert removed is not None, "an ACL is removed that does not exist"
        acl = Acl.of(removed)
        left = tuple(acl_id for acl_id in self._ids.pop(acl) if acl_id != record.id)
        if left:
            self._ids[acl] = left

    def _matching(self, asked: AclFilter) -> list[AccessControlEntryRecord]:
        acl = asked.only()
        if acl is not None:
            return [self._by_id[acl_id] for acl_id in self._ids.get(acl, ())]
        return [record for record in self._by_id.values() if asked.matches(record)]

    def _add_id(self, record: AccessControlEntryRecord) -> None:
        acl = Acl.of(record)
        self._ids[acl] = (*self._ids.get(acl, ()), record.id)

    def _new_id(self) -> Uuid:
        acl_id = self._random.uuid()
        while acl_id in self._by_id:
            acl_id = self._random.uuid()
        return acl_id


def is_known(asked: AclFilter) -> bool:
    """Return whether every code of a filter is one that this version knows."""
    return not _unknown_part(asked)


def _unknown_part(asked: AclFilter) -> str:
    if "UNKNOWN" in (name_of(ResourceType, asked.resource_type), name_of(PatternType, asked.pattern_type)):
        return "Unknown patternFilter."
    if "UNKNOWN" in (name_of(AclOperation, asked.operation), name_of(PermissionType, asked.permission_type)):
        return "Unknown entryFilter."
    return ""


def _refusal(acl: Acl) -> ApiError | None:
    """Return why an ACL cannot be created, None if it can."""
    if (name := name_of(ResourceType, acl.resource_type)) in ("UNKNOWN", "ANY"):
        message = f"Invalid resourceType {name}"
    elif acl.pattern_type not in _CONCRETE:
        message = f"Invalid patternType {name_of(PatternType, acl.pattern_type)}"
    elif (name := name_of(AclOperation, acl.operation)) in ("UNKNOWN", "ANY"):
        message = f"Invalid operation {name}"
    elif (name := name_of(PermissionType, acl.permission_type)) in ("UNKNOWN", "ANY"):
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
