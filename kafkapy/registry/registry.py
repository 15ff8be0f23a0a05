"""The requests of a registry: look up, decide, and write the records of the decision.

A write first reads the topic to its end, then decides on that state, appends its records, and ends when they have been
read back. Writes follow one another under one lock. Only the leader of several registries writes (election.py):
registrations on two of them could give one id to two schemas.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from kafkapy.registry import errors
from kafkapy.registry.compatibility import Previous, incompatibilities
from kafkapy.registry.formats.parsed import ParsedSchema, SchemaSyntaxError
from kafkapy.registry.model import Level, Mode, SchemaReference, StoredSchema
from kafkapy.registry.records import context_key, context_value, schema_key, schema_value, subject_key, subject_value
from kafkapy.registry.request import LATEST, NEW_ID, NEW_VERSION, SchemaRequest
from kafkapy.registry.schemas import Schemas
from kafkapy.registry.settings import merged_metadata, merged_rule_set
from kafkapy.registry.state import RegistryState
from kafkapy.registry.subjects import DEFAULT_CONTEXT, Subject, context_of, is_valid, qualified_by

NewRecords = Sequence[tuple[bytes, bytes | None]]
RESERVED: Final = "confluent:reserved"


class Store(Protocol):
    """The topic _schemas: kafkapy.registry.schemas_topic.SchemasTopic. Methods raise RegistryError."""

    state: RegistryState

    def catch_up(self) -> None:
        """Return once all that is in the topic now has been replayed."""

    def begin_write(self) -> None:
        """Like catch_up, before a decision. After it no record that an earlier leader has decided can be appended."""

    def append(self, records: NewRecords) -> None:
        """Append the records of a decision since begin_write; return once they have been replayed."""


class Registry:
    """The requests of one registry. Methods raise RegistryError. `subject` is normalized (subjects.normalized)."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.state = store.state
        self.schemas = Schemas(store.state)
        self._writing = threading.Lock()

    def catch_up(self) -> None:
        self._store.catch_up()

    # ---- look-ups

    def look_up(self, subject: str, request: SchemaRequest, *, normalize: bool, deleted: bool) -> StoredSchema | None:
        """Return the version of a subject with this schema; if its context is the default, also of other contexts."""
        found = self._look_up(subject, request, normalize=normalize, deleted=deleted)
        parsed_subject = Subject.parse(subject)
        if found is not None or parsed_subject.context != DEFAULT_CONTEXT:
            return found
        for context in self.state.contexts[1:]:
            try:
                found = self._look_up(
                    str(Subject(context, parsed_subject.name)), request, normalize=normalize, deleted=deleted
                )
            except errors.InvalidSchemaError:
                continue
            if found is not None:
                return found
        return None

    def _look_up(self, subject: str, request: SchemaRequest, *, normalize: bool, deleted: bool) -> StoredSchema | None:
        parsed = self._parsed(subject, request, normalize=normalize)
        found = self._find_same(subject, parsed, request, deleted=deleted)
        if found is not None:
            return found
        latest = self.state.latest(subject)
        if latest is None:
            return None
        filled = _with_metadata(request, latest, self.state.settings_in_scope(subject))
        return None if filled == request else self._find_same(subject, parsed, filled, deleted=deleted)

    def _find_same(
        self, subject: str, parsed: ParsedSchema, request: SchemaRequest, *, deleted: bool
    ) -> StoredSchema | None:
        """Return the newest version with this text, these references, metadata and rules."""
        references = _references_with_versions(self.state, subject, parsed.references)
        listed = self.state.versions(subject, deleted=deleted)
        for each in reversed(listed[-1:] if request.version == LATEST else listed):
            if (
                each.schema_type != parsed.kind
                or each.metadata != request.metadata
                or each.rule_set != request.rule_set
            ):
                continue
            if (
                each.schema == parsed.canonical
                and _references_with_versions(self.state, subject, each.references) == references
            ):
                return each
            if self._is_same_text(each, parsed, references):
                return each
        return None

    def _is_same_text(self, stored: StoredSchema, parsed: ParsedSchema, references: Any) -> bool:
        """Whether a stored schema is equal in canonical form, or once its references are resolved.

        Schemas that another registry wrote are stored in another form.
        """
        try:
            other = self.schemas.of_stored(stored)
        except errors.RegistryError:
            return False
        if other.canonical == parsed.canonical:
            return bool(_references_with_versions(self.state, stored.subject, stored.references) == references)
        is_within = bool(stored.references) and not parsed.references
        return is_within and other.formatted("resolved") == parsed.canonical

    def _parsed(self, subject: str, request: SchemaRequest, *, normalize: bool) -> ParsedSchema:
        parsed = self.schemas.of_request(subject, request)
        wants = normalize or self.state.settings_in_scope(subject).get("normalize") is True
        return parsed.normalized() if wants and not self.state.mode_in_scope(subject).imports else parsed

    # ---- compatibility

    def check(
        self, subject: str, request: SchemaRequest, previous: Sequence[StoredSchema], *, normalize: bool
    ) -> list[str]:
        """Return why a schema may not follow these versions, by the level of the subject; empty if it may."""
        parsed = self._parsed(subject, request, normalize=normalize)
        settings = self.state.settings_in_scope(subject)
        if settings.get("validateNewSchemas") is True:
            self._validate_as_new(parsed)
        return self._incompatibilities(parsed, request, previous, settings)

    def _incompatibilities(
        self, parsed: ParsedSchema, request: SchemaRequest, previous: Sequence[StoredSchema], settings: dict[str, Any]
    ) -> list[str]:
        level = Level[settings["compatibilityLevel"]]
        checks_fields = settings.get("validateFields") is True
        found = self._reserved_field_conflicts(parsed, request, previous) if checks_fields else []
        group = settings.get("compatibilityGroup")
        if group is not None:
            own = _property(request.metadata, group)
            previous = [each for each in previous if _property(each.metadata, group) == own]
        comparable = [Previous(each.version, lambda each=each: self.schemas.of_stored(each)) for each in previous]  # type: ignore[misc]
        lenient = settings.get("compatibilityPolicy") == "LENIENT"
        found += incompatibilities(level, parsed, comparable, lenient=lenient)
        if found:
            found.append(f"{{validateFields: '{str(checks_fields).lower()}', compatibility: '{level}'}}")
        return found

    def _reserved_field_conflicts(
        self, parsed: ParsedSchema, request: SchemaRequest, previous: Sequence[StoredSchema]
    ) -> list[str]:
        reserved = _reserved(request.metadata)
        before = _reserved(previous[-1].metadata) if previous else set()
        found = [
            f"The new schema has reserved field {each} removed from its metadata which is present in the old schema's "
            "metadata."
            for each in sorted(before - reserved)
        ]
        return found + [
            f"The new schema has field that conflicts with the reserved field {each}."
            for each in sorted(reserved)
            if parsed.has_top_level_field(each)
        ]

    @staticmethod
    def _validate_as_new(parsed: ParsedSchema) -> None:
        try:
            parsed.validate_as_new()
        except SchemaSyntaxError as error:
            raise errors.InvalidSchemaError(f"Invalid schema of type {parsed.kind}, details: {error}") from error

    # ---- registrations

    def register(self, subject: str, request: SchemaRequest, *, normalize: bool, force: bool = False) -> StoredSchema:
        """Return the version with a schema, which is new if none of the subject has it."""
        if not is_valid(subject, is_of_settings=False):
            raise errors.invalid_subject(subject)
        with self._writing:
            self._store.begin_write()
            self._check_may_register(subject, request)
            return self._register(subject, request, normalize=normalize, force=force)

    def find_registered(self, subject: str, request: SchemaRequest, *, normalize: bool) -> StoredSchema | None:
        """Return the version with this schema if there is one: such a registration writes nothing, on any registry."""
        settings = self.state.settings_in_scope(subject)
        if not request.schema.strip() or any(settings.get(name) for name in _SETTINGS_THAT_FILL):
            return None
        found = self._look_up(subject, request, normalize=normalize, deleted=False)
        if found is None or request.id not in (NEW_ID, found.id):
            return None
        return found if request.version in (NEW_VERSION, LATEST, found.version) else None

    def _register(self, subject: str, request: SchemaRequest, *, normalize: bool, force: bool) -> StoredSchema:
        settings, mode = self.state.settings_in_scope(subject), self.state.mode_in_scope(subject)
        request = replace(request, references=_with_versions(self.state, subject, request.references))
        all_versions, undeleted = self.state.versions(subject, deleted=True), self.state.versions(subject)
        next_version = all_versions[-1].version + 1 if all_versions else 1
        if not mode.imports:
            if not request.schema.strip() and undeleted:  # only metadata or rules change
                latest = undeleted[-1]
                request = replace(request, schema=latest.schema, kind=latest.schema_type, references=latest.references)
            request = _with_metadata(request, undeleted[-1] if undeleted else None, settings, next_version)
        parsed = self._parsed(subject, request, normalize=normalize)
        if request.id == NEW_ID and settings.get("validateNewSchemas") is True:
            self._validate_as_new(parsed)
        new = StoredSchema(
            subject=subject,
            version=next_version,
            id=request.id,
            schema=parsed.canonical,
            schema_type=parsed.kind,
            references=parsed.references,
            metadata=request.metadata,
            rule_set=request.rule_set,
        )
        known_id = self.state.id_of_guid(context_of(subject), new.guid)
        found = self._find_same(subject, parsed, replace(request, version=NEW_VERSION), deleted=False)
        if request.version == NEW_VERSION and found is not None and request.id in (NEW_ID, found.id):
            return found
        if not mode.imports and not force:
            reasons = self._incompatibilities(parsed, request, undeleted, settings)
            if reasons:
                raise errors.incompatible(subject, reasons)
        new = replace(
            new, version=self._version_of(request, next_version, mode), id=self._id_of(new, known_id, request)
        )
        self._append_schema(new, all_versions)
        stored = self.state.version(subject, new.version, deleted=True)
        assert stored is not None, "what was appended was replayed"
        return stored

    @staticmethod
    def _version_of(request: SchemaRequest, next_version: int, mode: Mode) -> int:
        if request.version <= 0:
            return next_version
        if request.version != next_version and not mode.imports:
            raise errors.InvalidSchemaError("Version is not one more than previous version")
        return request.version

    def _id_of(self, new: StoredSchema, known_id: int | None, request: SchemaRequest) -> int:
        """Return the id: the requested one, else that of the same schema in this context, else the next free one."""
        context = context_of(new.subject)
        if request.id == NEW_ID:
            return self.state.next_id(context) if known_id is None else known_id
        users = self.state.users_of(context, request.id)
        if users and users[0].guid != new.guid:
            prefix = Subject(context, "").qualified_context
            text = f"Overwrite new schema with id {request.id} in context {prefix} is not permitted."
            raise errors.not_permitted(text)
        return request.id

    def _append_schema(self, new: StoredSchema, all_versions: Sequence[StoredSchema]) -> None:
        records: list[tuple[bytes, bytes | None]] = []
        context = context_of(new.subject)
        if context != DEFAULT_CONTEXT and not self.state.has_context(context):
            records.append((context_key(context), context_value(context)))
        for each in all_versions:  # a softly deleted version with the same id is removed: the new version replaces it
            is_older = each.deleted and each.id == new.id and each.version < new.version
            if is_older and not self.state.referrers(each.subject, each.version, deleted=True):
                records.append((schema_key(each.subject, each.version), None))
        records.append((schema_key(new.subject, new.version), schema_value(new)))
        self._store.append(records)

    def _check_may_register(self, subject: str, request: SchemaRequest) -> None:
        self._check_not_read_only(subject)
        mode, context = self.state.mode_in_scope(subject), Subject.parse(subject).qualified_context
        if request.id != NEW_ID:
            if not mode.imports:
                raise errors.not_permitted(f"Subject {subject} in context {context} is not in import mode")
        elif mode is not Mode.READWRITE:
            raise errors.not_permitted(f"Subject {subject} in context {context} is not in read-write mode")

    def _check_not_read_only(self, subject: str | None) -> None:
        if self.state.mode_in_scope(subject).is_read_only:
            context = "" if subject is None else Subject.parse(subject).qualified_context
            raise errors.not_permitted(f"Subject {_java(subject)} in context {context} is in read-only mode")

    # ---- deletions

    def delete_version(self, subject: str, version: int, *, permanent: bool) -> int:
        """Delete a version softly, or, if it is, permanently; return its number."""
        with self._writing:
            self._store.begin_write()
            found = self.state.version(subject, version, deleted=True)
            if found is None:
                if not self.state.has(subject, deleted=True):
                    raise errors.subject_not_found(subject)
                raise errors.version_not_found(version)
            if found.deleted and not permanent:
                raise errors.version_soft_deleted(subject, version)
            self._check_not_read_only(subject)
            if self.state.referrers(subject, found.version, deleted=permanent):
                raise errors.reference_exists(subject, found.version)
            if permanent and not found.deleted:
                raise errors.version_not_soft_deleted(subject, found.version)
            key = schema_key(subject, found.version)
            records: list[tuple[bytes, bytes | None]]
            if not permanent:
                records = [(key, schema_value(replace(found, deleted=True)))]
            else:
                records = [(key, None)]
                if self.state.versions(subject, deleted=True) == [found]:
                    records += self._settings_tombstones(subject)
            self._store.append(records)
            return found.version

    def delete_subject(self, subject: str, *, permanent: bool) -> list[int]:
        """Delete all versions of a subject; return their numbers."""
        with self._writing:
            self._store.begin_write()
            if not self.state.has(subject, deleted=True):
                raise errors.subject_not_found(subject)
            if not permanent and not self.state.has(subject, deleted=False):
                raise errors.subject_soft_deleted(subject)
            self._check_not_read_only(subject)
            versions = self.state.versions(subject, deleted=permanent)
            for each in versions:
                referrers = self.state.referrers(subject, each.version, deleted=permanent)
                if any(one.subject != subject for one in referrers):
                    raise errors.reference_exists(subject, each.version)
                if permanent and not each.deleted:
                    raise errors.subject_not_soft_deleted(subject)
            numbers = [each.version for each in versions]
            if not numbers:  # the subject stands for a context, which has subjects and no versions of its own
                return []
            records: list[tuple[bytes, bytes | None]]
            if permanent:
                records = [(schema_key(subject, number), None) for number in reversed(numbers)]
                records += self._settings_tombstones(subject)
            else:
                value = subject_value(subject, {"version": numbers[-1]})
                records = [(subject_key("DELETE_SUBJECT", subject), value)]
            self._store.append(records)
            return numbers

    def _settings_tombstones(self, subject: str) -> Iterator[tuple[bytes, bytes | None]]:
        if self.state.own_settings(subject) is not None:
            yield subject_key("CONFIG", subject), None
        if self.state.mode(subject) is not None:
            yield subject_key("MODE", subject), None

    def delete_context(self, context: str) -> None:
        name = Subject.parse(context if context.startswith(":") else f":{context}:").context
        with self._writing:
            self._store.begin_write()
            if self.state.has(f":{name}:", deleted=True):
                raise errors.context_not_empty(context)
            self._store.append([(context_key(name), None)])

    # ---- settings and modes

    def update_settings(self, subject: str | None, changes: dict[str, Any]) -> dict[str, Any]:
        """Change a subject's settings; None for a value removes it. Return the settings after that."""
        with self._writing:
            self._store.begin_write()
            self._check_not_read_only(subject)
            found = {**(self.state.own_settings(subject) or {}), **changes}
            found = {name: value for name, value in found.items() if value is not None}
            self._store.append([(subject_key("CONFIG", subject), subject_value(subject, found))])
            return found

    def delete_settings(self, subject: str | None) -> None:
        with self._writing:
            self._store.begin_write()
            self._check_not_read_only(subject)
            self._store.append([(subject_key("CONFIG", subject), None)])

    def set_mode(self, subject: str | None, mode: Mode, *, force: bool) -> None:
        """Set a mode. For IMPORT there must be no schemas; softly deleted ones are deleted permanently."""
        with self._writing:
            self._store.begin_write()
            records: list[tuple[bytes, bytes | None]] = []
            if mode is Mode.IMPORT and self.state.mode_in_scope(subject) is not Mode.IMPORT and not force:
                if self.state.has(subject or "", deleted=False):
                    raise errors.not_permitted("Cannot import since found existing subjects")
                for each in self.state.subjects_like(subject or "", deleted=True):
                    for schema in self.state.versions(each, deleted=True):
                        if self.state.referrers(each, schema.version, deleted=True):
                            raise errors.reference_exists(each, schema.version)
                        records.append((schema_key(each, schema.version), None))
                records.append((subject_key("CLEAR_SUBJECT", subject), subject_value(subject, {})))
            records.append((subject_key("MODE", subject), subject_value(subject, {"mode": mode.value})))
            self._store.append(records)

    def delete_mode(self, subject: str | None, *, recursive: bool) -> None:
        with self._writing:
            self._store.begin_write()
            subjects = [subject]
            if recursive and (subject is None or not Subject.parse(subject).name):
                subjects += [each for each in self.state.modes_within(context_of(subject)) if each != subject]
            self._store.append([(subject_key("MODE", each), None) for each in subjects])


_SETTINGS_THAT_FILL: Final = ("defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet")
"""Settings that add metadata or rules to registered schemas."""


def _with_metadata(
    request: SchemaRequest, latest: StoredSchema | None, settings: dict[str, Any], new_version: int | None = None
) -> SchemaRequest:
    """Return a request with the metadata and rules of the latest version, if it has none, and of the settings."""
    metadata = request.metadata if request.metadata is not None or latest is None else latest.metadata
    rule_set = request.rule_set if request.rule_set is not None or latest is None else latest.rule_set
    metadata = merged_metadata(settings.get("defaultMetadata"), metadata, settings.get("overrideMetadata"))
    rule_set = merged_rule_set(settings.get("defaultRuleSet"), rule_set, settings.get("overrideRuleSet"))
    if new_version is not None and (request.version != NEW_VERSION or _property(metadata, _VERSION) is not None):
        properties = {**((metadata or {}).get("properties") or {}), _VERSION: str(new_version)}
        metadata = {**(metadata or {}), "properties": dict(sorted(properties.items()))}
    return replace(request, metadata=metadata, rule_set=rule_set)


_VERSION: Final = "confluent:version"


def _with_versions(
    state: RegistryState, subject: str, references: tuple[SchemaReference, ...]
) -> tuple[SchemaReference, ...]:
    """Replace "latest" in references by the version that is the latest now, so that later ones change no schema."""
    numbers = [version for _, _, version in _references_with_versions(state, subject, references)]
    return tuple(replace(each, version=number) for each, number in zip(references, numbers, strict=True))


def _references_with_versions(
    state: RegistryState, subject: str, references: tuple[SchemaReference, ...]
) -> list[tuple[str, str, int]]:
    """Return (name, subject, version) of each reference, "latest" as the number of the latest version now."""
    found = []
    for each in references:
        name = qualified_by(subject, each.subject)
        latest = state.latest(name) if each.version == LATEST else None
        found.append((each.name, name, each.version if latest is None else latest.version))
    return found


def _property(metadata: Any, name: str) -> str | None:
    found = ((metadata or {}).get("properties") or {}).get(name)
    return found if isinstance(found, str) else None


def _reserved(metadata: Any) -> set[str]:
    return {each.strip() for each in (_property(metadata, RESERVED) or "").split(",") if each.strip()}


def _java(subject: str | None) -> str:
    return "null" if subject is None else subject
