"""The controller's table of ACLs: kept and carried on; deciding on them comes with the authorizer (KIP-801)."""

from collections.abc import Mapping

from kafkapy.metadata.image import MetadataImage
from kafkapy.protocol.messages.access_control_entry_record import AccessControlEntryRecord
from kafkapy.protocol.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from kafkapy.types import Uuid


class AclControl:
    def __init__(self) -> None:
        self._by_id: dict[Uuid, AccessControlEntryRecord] = {}

    def load(self, image: MetadataImage) -> None:
        self._by_id = dict(image.acls)

    @property
    def by_id(self) -> Mapping[Uuid, AccessControlEntryRecord]:
        return self._by_id

    def replay(self, record: AccessControlEntryRecord) -> None:
        assert record.id not in self._by_id, "an ACL is added twice"
        self._by_id[record.id] = record

    def replay_remove(self, record: RemoveAccessControlEntryRecord) -> None:
        assert record.id in self._by_id, "an ACL is removed that does not exist"
        del self._by_id[record.id]
