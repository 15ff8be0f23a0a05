"""Client quotas: the controller's table of them, and the filter that selects some of an image. KIP-546, KIP-612.

An entity is a user, a client-id, both, or an ip; a name of None is the default of its type. Each entity has quotas by
key. An invalid alteration is refused for its entity only, with Apache Kafka's message.

If a request names an entity twice, the first alteration is carried out and the response has the error of the second, as
in Apache Kafka. An ip must be an address. Deviation: Apache Kafka resolves host names. Here they are refused, because
name resolution would block the event loop.

Deviation: Apache Kafka enforces connection_creation_rate on all listeners. Here on those of brokers, because
controllers have no clients.
"""

import ipaddress
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kafkapy.errors import ApiError
from kafkapy.machine import Decision, Steps
from kafkapy.metadata.image import QuotaEntity
from kafkapy.metadata.limits import check_operation_size
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.alter_client_quotas_request import AlterClientQuotasRequest, EntryData, OpData
from kafkapy.protocol.messages.describe_client_quotas_request import ComponentData, DescribeClientQuotasRequest
from kafkapy.types import INT32_MAX, INT64_MAX

if TYPE_CHECKING:
    from kafkapy.protocol.messages.client_quota_record import ClientQuotaRecord

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (CLIENT_ID, IP, USER)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

MATCH_EXACT: Final = 0
MATCH_DEFAULT: Final = 1
MATCH_SPECIFIED: Final = 2

NO_QUOTAS: Final[Mapping[str, float]] = MappingProxyType({})


class _Bound(NamedTuple):
    """The largest value of an integral type, and the type's name in messages."""

    largest: int
    name: str


_LONG: Final = _Bound(INT64_MAX, "a LONG")
_INT: Final = _Bound(INT32_MAX, "an INT")

_USER_AND_CLIENT_KEYS: Final[dict[str, _Bound | None]] = {
    PRODUCER_BYTE_RATE: _LONG,
    CONSUMER_BYTE_RATE: _LONG,
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
_IP_KEYS: Final[dict[str, _Bound | None]] = {CONNECTION_CREATION_RATE: _INT}


class EntityResult(NamedTuple):
    """`error` is None if the alteration is carried out."""

    entity: QuotaEntity
    error: ApiError | None


class ClientQuotaControl:
    """The quotas as of the last record. `decide_alter` leaves them as they are; `replay` changes them."""

    def __init__(self, loaded: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """`loaded`: the quotas of the committed image at the start of the controller's term."""
        self._by_entity = {entity: dict(quotas) for entity, quotas in loaded.items()}

    @property
    def by_entity(self) -> Mapping[QuotaEntity, Mapping[str, float]]:
        return self._by_entity

    def decide_alter(self, request: AlterClientQuotasRequest) -> "Steps[ClientQuotaRecord, list[EntityResult]]":
        """Set and remove quotas, one entity per step, in one atomic batch. Raises ApiError POLICY_VIOLATION."""
        errors: dict[QuotaEntity, ApiError | None] = {}
        records: list[ClientQuotaRecord] = []
        for entry in request.entries:
            yield []
            entity = _entity(entry)
            try:
                changes = self._changes(entry, entity, is_repeated=entity in errors)
            except ApiError as error:
                errors[entity] = error
                continue
            errors[entity] = None
            records += [_record(entity, key, value) for key, value in changes.items()]
            check_operation_size(len(records))
        results = [EntityResult(entity, error) for entity, error in errors.items()]
        return Decision(results, [] if request.validate_only else records, is_atomic=True)

    def _changes(self, entry: EntryData, entity: QuotaEntity, *, is_repeated: bool) -> dict[str, float | None]:
        """Return the changed quotas of an entity, None for removed ones. Raises ApiError."""
        if is_repeated or len({operation.key for operation in entry.ops}) < len(entry.ops):
            raise _invalid(f"Ignoring duplicate entity {_described(entity)}")
        _check_entity(entity)
        keys = _keys_of(dict(entity))
        quotas = self._by_entity.get(entity, NO_QUOTAS)
        changes: dict[str, float | None] = {}
        for operation in entry.ops:
            if operation.remove:
                if operation.key in quotas:
                    changes[operation.key] = None
                continue
            _check_value(keys, operation)
            if quotas.get(operation.key) != operation.value:
                changes[operation.key] = operation.value
        return changes

    # -- replay ---------------------------------------------------------------------------------------------------

    def replay(self, record: "ClientQuotaRecord") -> None:
        entity = tuple(sorted((part.entity_type, part.entity_name) for part in record.entity))
        quotas = self._by_entity.setdefault(entity, {})
        if record.remove:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = record.value
        if not quotas:
            del self._by_entity[entity]


class QuotaFilter:
    """The filter of DescribeClientQuotas: an entity must match all components. Raises ApiError if invalid."""

    def __init__(self, request: DescribeClientQuotasRequest) -> None:
        self._is_strict = request.strict
        self._names: dict[str, str | None] = {}
        """By entity type: the exact name, None for the default."""
        self._types: set[str] = set()
        """Entity types that match any name."""
        for component in request.components:
            self._add(component)
        assert self._names.keys().isdisjoint(self._types), "a strict filter counts each type once"
        used = self._names.keys() | self._types
        if IP in used and used & {USER, CLIENT_ID}:
            raise _invalid(
                "Invalid entity filter component combination. IP filter component should not be used with user or "
                "clientId filter component."
            )

    def matches(self, entity: QuotaEntity) -> bool:
        if self._is_strict and len(entity) != len(self._names) + len(self._types):
            return False
        names = dict(entity)
        return self._types <= names.keys() and all(
            type_ in names and names[type_] == name for type_, name in self._names.items()
        )

    def _add(self, component: ComponentData) -> None:
        type_ = component.entity_type
        if not type_:
            raise _invalid("Invalid empty entity type.")
        if type_ in self._names or type_ in self._types:
            raise _invalid(f"Entity type {type_} cannot appear more than once in the filter.")
        if type_ not in ENTITY_TYPES:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {type_}")
        _check_match(component)
        if component.match_type == MATCH_SPECIFIED:
            self._types.add(type_)
        else:
            self._names[type_] = component.match


def _check_match(component: ComponentData) -> None:
    match component.match_type:
        case 0:
            if component.match is None:
                raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        case 1 | 2 as match_type:
            if component.match is not None:
                name = "MATCH_TYPE_DEFAULT" if match_type == MATCH_DEFAULT else "MATCH_TYPE_SPECIFIED"
                raise _invalid(f"Request specified {name}, but also specified a match string.")
        case _:
            raise _invalid(f"Unknown match type {component.match_type}")


def _entity(entry: EntryData) -> QuotaEntity:
    """Return an alteration's entity. If a type is named twice, the last name counts."""
    names = {part.entity_type: part.entity_name for part in entry.entity}
    return tuple((entity_type, names[entity_type]) for entity_type in sorted(names))


def _check_entity(entity: QuotaEntity) -> None:
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    for entity_type, name in entity:
        if entity_type not in ENTITY_TYPES:
            raise _invalid(f"Unhandled client quota entity type: {entity_type}")
        if name == "":
            raise _invalid(f"Empty {entity_type} not supported")


def _keys_of(names: Mapping[str, str | None]) -> Mapping[str, _Bound | None]:
    """Return the quota keys that an entity may have; its types were checked before."""
    if IP not in names:
        return _USER_AND_CLIENT_KEYS
    if len(names) > 1:
        # "shouldnot" is Kafka's.
        raise _invalid("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
    address = names[IP]
    if address is not None and not _is_address(address):
        raise _invalid(f"{address} is not a valid IP or resolvable host.")
    return _IP_KEYS


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _check_value(keys: Mapping[str, _Bound | None], operation: OpData) -> None:
    key, value = operation.key, operation.value
    if key not in keys:
        raise _invalid(f"Invalid configuration key {key}")
    # Deviation: Apache Kafka accepts NaN as a quota. Here it is refused, because it would throttle nobody.
    if not value > 0.0:
        raise _invalid(f"Quota {key} must be greater than 0")
    bound = keys[key]
    if bound is None:
        return
    if value > float(bound.largest):
        raise _invalid(f"Proposed value for {key} is too large for {bound.name}.")
    if value % 1.0 > 1e-6:
        raise _invalid(f"{key} cannot be a fractional value.")


def _record(entity: QuotaEntity, key: str, value: float | None) -> "ClientQuotaRecord":
    from kafkapy.protocol.messages.client_quota_record import ClientQuotaRecord, EntityData

    assert value is None or value > 0.0, f"{key} of {value} would let nothing pass"
    parts = [EntityData(entity_type=entity_type, entity_name=name) for entity_type, name in entity]
    return ClientQuotaRecord(entity=parts, key=key, value=value or 0.0, remove=value is None)


def _described(entity: QuotaEntity) -> str:
    names = ", ".join(f"{entity_type}={'null' if name is None else name}" for entity_type, name in entity)
    return f"ClientQuotaEntity(entries={{{names}}})"


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
