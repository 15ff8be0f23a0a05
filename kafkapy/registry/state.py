"""The state of a registry: the replayed records of _schemas. Only `replay` changes it. Pure.

One thread replays while others look up: these walk over copies, and leave out what was forgotten meanwhile.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from kafkapy.registry.model import Level, Mode, SchemaReference, Settings, StoredSchema
from kafkapy.registry.records import parse_json, parse_schema
from kafkapy.registry.settings import stored_settings
from kafkapy.registry.subjects import (
    DEFAULT_CONTEXT,
    GLOBAL_CONTEXT,
    WILDCARD,
    Subject,
    context_of,
    context_prefix,
    qualified_by,
)


class RegistryState:
    """Schemas by subject and version, settings and modes by subject (None: of all), contexts.

    `default_level`: of subjects without one, where all have none.
    """

    def __init__(self, default_level: Level = Level.BACKWARD) -> None:
        self.default_level = default_level
        self._versions: dict[str, dict[int, StoredSchema]] = {}
        self._by_id: dict[tuple[str, int], dict[tuple[str, int], None]] = {}
        """By context and id: subjects and versions, deleted ones too."""
        self._by_guid: dict[tuple[str, str], int] = {}
        """By context and guid: the id."""
        self._largest_ids: dict[str, int] = {}
        self._settings: dict[str | None, Settings] = {}
        self._modes: dict[str | None, Mode] = {}
        self._contexts: dict[str, None] = {}
        self._referrers: dict[tuple[str, int], dict[tuple[str, int], None]] = {}
        """By subject and version that are referred to: the subjects and versions that do."""

    # ---- replay

    def replay(self, key: bytes | None, value: bytes | None, timestamp_ms: int | None = None) -> None:
        """Apply a record. What is not understood is ignored, as Confluent's registry does."""
        found = parse_json(key)
        if found is None:
            return
        content = parse_json(value)
        subject = found.get("subject")
        if subject is not None and not isinstance(subject, str):
            return
        match found.get("keytype"):
            case "SCHEMA" if subject is not None and isinstance(found.get("version"), int):
                schema = None if content is None else parse_schema(content, timestamp_ms)
                if schema is not None or value is None:
                    self._replay_schema(subject, found["version"], schema)
            case "CONFIG":
                if content is None:  # an empty value deletes what the key names, as compaction does
                    self._settings.pop(subject, None)
                else:
                    self._settings[subject] = stored_settings(content)
            case "MODE":
                mode = None if content is None else content.get("mode")
                if isinstance(mode, str) and mode in Mode.__members__:
                    self._modes[subject] = Mode[mode]
                else:  # also for a mode that this release does not know
                    self._modes.pop(subject, None)
            case "DELETE_SUBJECT" if subject is not None and content and isinstance(content.get("version"), int):
                self._delete_up_to(subject, content["version"])
            case "CLEAR_SUBJECT" if content is not None:
                self._clear(subject)
            case "CONTEXT" if isinstance(found.get("context"), str):
                if content is None:
                    self._contexts.pop(found["context"], None)
                else:
                    self._contexts[found["context"]] = None

    def _replay_schema(self, subject: str, version: int, schema: StoredSchema | None) -> None:
        if schema is None:
            self._forget(subject, version)
            return
        if (schema.subject, schema.version) != (subject, version):  # the key says what this is
            schema = replace(schema, subject=subject, version=version)
        old = self._versions.get(subject, {}).get(version)
        if old is not None and _identity_of(old) == _identity_of(schema):  # it is found by its id all the time
            self._versions[subject][version] = schema
            return
        self._forget(subject, version)
        context = context_of(subject)
        self._versions.setdefault(subject, {})[version] = schema
        self._by_id.setdefault((context, schema.id), {})[(subject, version)] = None
        self._by_guid[(context, schema.guid)] = schema.id
        self._largest_ids[context] = max(self._largest_ids.get(context, 0), schema.id)
        for referred in self._referred_by(schema):
            self._referrers.setdefault(referred, {})[(subject, version)] = None

    def _forget(self, subject: str, version: int) -> None:
        old = self._versions.get(subject, {}).pop(version, None)
        if old is None:
            return
        if not self._versions[subject]:
            del self._versions[subject]
        context = context_of(subject)
        users = self._by_id[(context, old.id)]
        del users[(subject, version)]
        if not users:
            del self._by_id[(context, old.id)]
            self._by_guid.pop((context, old.guid), None)
        for referred in self._referred_by(old):
            self._referrers.get(referred, {}).pop((subject, version), None)

    @staticmethod
    def _referred_by(schema: StoredSchema) -> Iterator[tuple[str, int]]:
        for each in schema.references:
            yield qualified_by(schema.subject, each.subject), each.version

    def _delete_up_to(self, subject: str, last_version: int) -> None:
        for version, schema in list(self._versions.get(subject, {}).items()):
            if version <= last_version and not schema.deleted:
                self._versions[subject][version] = replace(schema, deleted=True)

    def _clear(self, subject: str | None) -> None:
        for each in [*self.subjects_like(subject or "", deleted=True)]:
            for version, schema in list(self._versions[each].items()):
                if schema.deleted:
                    self._forget(each, version)

    # ---- schemas

    def version(self, subject: str, version: int, *, deleted: bool = False) -> StoredSchema | None:
        """Return a version; -1: the latest that is not deleted."""
        if version == -1:
            return self.latest(subject)
        found = self._versions.get(subject, {}).get(version)
        return found if found is not None and (deleted or not found.deleted) else None

    def versions(self, subject: str, *, deleted: bool = False) -> list[StoredSchema]:
        """Return the versions of a subject, ascending."""
        found = sorted(self._versions.get(subject, {}).items())
        return [schema for _, schema in found if deleted or not schema.deleted]

    def latest(self, subject: str) -> StoredSchema | None:
        return next(reversed(self.versions(subject)), None)

    def has(self, subject: str, *, deleted: bool) -> bool:
        """Whether a subject has versions; a context alone stands for its subjects."""
        return next(iter(self.subjects_like(subject, deleted=deleted)), None) is not None

    def subjects_like(self, subject: str, *, deleted: bool) -> Iterator[str]:
        """Yield a subject if it has versions; for a context alone ("" is the default one) all of its subjects."""
        wanted = Subject.parse(subject)
        for each in sorted(self._versions) if not wanted.name else (subject,):
            if not wanted.name and context_of(each) != wanted.context:
                continue
            if self.versions(each, deleted=deleted):
                yield each

    def subjects(self, prefix: str = WILDCARD) -> list[str]:
        """Return the subjects that begin with a prefix, deleted ones too; `:*:name`: in every context."""
        if not prefix.startswith(WILDCARD):
            return [each for each in sorted(self._versions) if each.startswith(prefix)]
        rest = prefix[len(WILDCARD) :]
        return [each for each in sorted(self._versions) if Subject.parse(each).name.startswith(rest)]

    def with_id(self, schema_id: int, subject: str | None = None) -> StoredSchema | None:
        """Return a schema by its id, which a context gave: of the subject's, which has it, else of any that does.

        A subject of the default context is also looked for in the other ones, as Confluent's registry does.
        """
        wanted = Subject.parse(subject or "")
        found = self._of_subject(schema_id, wanted)
        if found is not None or not wanted.name or wanted.context != DEFAULT_CONTEXT:
            return found
        for context in list(self._contexts):
            found = self._of_subject(schema_id, Subject(context, wanted.name))
            if found is not None:
                return found
        return self._of_subject(schema_id, Subject(wanted.context, ""))

    def _of_subject(self, schema_id: int, wanted: Subject) -> StoredSchema | None:
        users = self.users_of(wanted.context, schema_id)
        return next((each for each in users if not wanted.name or each.subject == str(wanted)), None)

    def users_of(self, context: str, schema_id: int) -> list[StoredSchema]:
        """Return the versions that have an id, deleted ones too."""
        return self._existing(sorted(self._by_id.get((context, schema_id), ())))

    def _existing(self, names: Iterable[tuple[str, int]]) -> list[StoredSchema]:
        found = (self._versions.get(subject, {}).get(version) for subject, version in names)
        return [each for each in found if each is not None]

    def id_of_guid(self, context: str, guid: str) -> int | None:
        return self._by_guid.get((context, guid))

    def next_id(self, context: str) -> int:
        return self._largest_ids.get(context, 0) + 1

    def largest_id(self, context: str) -> int:
        return self._largest_ids.get(context, 0)

    def referrers(self, subject: str, version: int, *, deleted: bool) -> list[StoredSchema]:
        """Return the versions that refer to one."""
        found = self._existing(list(self._referrers.get((subject, version), ())))
        return [each for each in found if deleted or not each.deleted]

    def resolve(self, subject: str, references: tuple[SchemaReference, ...]) -> dict[str, StoredSchema]:
        """Return what a schema refers to by name, each after what it refers to itself. Raises LookupError.

        Each name is looked up once, and stands for what was found first, as in Confluent's registry: schemas that refer
        to two of the level below would else double the work with each level.
        """
        found: dict[str, StoredSchema] = {}
        self._resolve(subject, references, found, set())
        return found

    def _resolve(
        self,
        subject: str,
        references: tuple[SchemaReference, ...],
        found: dict[str, StoredSchema],
        visited: set[str],
    ) -> None:
        for each in references:
            if each.name in visited:
                continue
            visited.add(each.name)
            name = qualified_by(subject, each.subject)
            schema = self.version(name, each.version, deleted=True)
            if schema is None:
                text = f'No schema reference found for subject "{each.subject}" and version {each.version}'
                raise LookupError(text)
            self._resolve(name, schema.references, found, visited)
            found[each.name] = schema

    # ---- contexts, settings, modes

    @property
    def contexts(self) -> list[str]:
        return [DEFAULT_CONTEXT, *sorted(self._contexts)]

    def has_context(self, context: str) -> bool:
        return context in self._contexts

    def settings(self, subject: str | None) -> Settings | None:
        """Return a subject's own settings; None if it has none."""
        found = self._settings.get(subject)
        if found is None:
            is_top = subject is None or context_of(subject) == GLOBAL_CONTEXT
            return {"compatibilityLevel": self.default_level.value} if is_top else None
        return {**found, "compatibilityLevel": found.get("compatibilityLevel", self.default_level.value)}

    def settings_in_scope(self, subject: str | None) -> Settings:
        """Return what holds for a subject: its own settings, else its context's, else those of all."""
        own = self._settings.get(subject)
        if own is None:
            for scope in _scopes(subject):
                own = self._settings.get(scope)
                if own is not None:
                    break
            return {"compatibilityLevel": self.default_level.value, **(own or {})}
        merged = {key: value for key, value in self._settings.get(None, {}).items() if key in _INHERITED}
        return {"compatibilityLevel": self.default_level.value, **merged, **own}

    def own_settings(self, subject: str | None) -> Settings | None:
        """Return the settings as they are stored."""
        return self._settings.get(subject)

    def mode(self, subject: str | None) -> Mode | None:
        """Return a subject's own mode; None if it has none."""
        found = self._modes.get(subject)
        if found is None and (subject is None or context_of(subject) == GLOBAL_CONTEXT):
            return Mode.READWRITE
        return found

    def mode_in_scope(self, subject: str | None) -> Mode:
        for scope in (None, f":{GLOBAL_CONTEXT}:"):  # it rules over every subject's own
            if self._modes.get(scope) is Mode.READONLY_OVERRIDE:
                return Mode.READONLY_OVERRIDE
        found = (self._modes.get(scope) for scope in (subject, *_scopes(subject)))
        return next((mode for mode in found if mode is not None), Mode.READWRITE)

    def modes_within(self, context: str) -> list[str]:
        """Return the subjects of a context that have a mode of their own."""
        return [each for each in list(self._modes) if each is not None and context_of(each) == context]


def _identity_of(schema: StoredSchema) -> tuple[object, ...]:
    """Return the keys by which schemas are looked up, beside their subject and version."""
    return (schema.id, schema.guid, schema.references)


_INHERITED = (
    "normalize",
    "validateFields",
    "validateNewSchemas",
    "validateRules",
    "compatibilityPolicy",
    "compatibilityGroup",
)
"""Settings that a subject with settings of its own has from those of all."""


def _scopes(subject: str | None) -> tuple[str | None, ...]:
    """Return where settings are looked for after the subject's own."""
    context = context_of(subject)
    own = None if context == DEFAULT_CONTEXT else context_prefix(context)
    return (own, f":{GLOBAL_CONTEXT}:")
