"""The table of paths, and a method for each response. Methods raise RegistryError; writes run on the leader only."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from kafkapy.dataclass import dataclass
from kafkapy.registry import errors
from kafkapy.registry.errors import RegistryError
from kafkapy.registry.http.paths import Target
from kafkapy.registry.metadata_rules import check_rules
from kafkapy.registry.model import Mode, StoredSchema, rules_of
from kafkapy.registry.registry import Registry
from kafkapy.registry.request import KINDS, LATEST, SchemaRequest, int32_of, schema_request, version_number
from kafkapy.registry.settings import RULE_SETS, as_request, changes_of
from kafkapy.registry.subjects import (
    DEFAULT_CONTEXT,
    GLOBAL_CONTEXT,
    WILDCARD,
    Subject,
    context_of,
    is_valid,
    normalized,
    qualified_by,
)
from kafkapy.version import __version__

GUIDS_CONTEXT: Final = "context"


@dataclass(frozen=True, slots=True)
class Call:
    """A request. names: the parts of the path where the pattern in the table has {}."""

    target: Target
    names: tuple[str, ...]
    body: Any


Handler = Callable[[Call], Any]


class Api:
    """Answers requests. `is_write` and `known` decide whether the leader must. ids: returns cluster id and group id."""

    def __init__(self, registry: Registry, ids: Callable[[], tuple[str, str]]) -> None:
        self._registry = registry
        self._state = registry.state
        self._ids = ids
        self._table: dict[tuple[str, ...], dict[str, Handler]] = {
            (): {"GET": lambda call: {}},
            ("subjects",): {"GET": self._subjects},
            ("subjects", "{}"): {"POST": self._look_up, "DELETE": self._delete_subject},
            ("subjects", "{}", "metadata"): {"GET": self._latest_with_metadata},
            ("subjects", "{}", "versions"): {"GET": self._versions, "POST": self._register},
            ("subjects", "{}", "versions", "{}"): {"GET": self._version, "DELETE": self._delete_version},
            ("subjects", "{}", "versions", "{}", "schema"): {"GET": self._version_text},
            ("subjects", "{}", "versions", "{}", "referencedby"): {"GET": self._referenced_by},
            ("schemas",): {"GET": self._schemas},
            ("schemas", "types"): {"GET": lambda call: list(KINDS)},
            ("schemas", "ids", "{}"): {"GET": self._schema},
            ("schemas", "ids", "{}", "schema"): {"GET": self._schema_text},
            ("schemas", "ids", "{}", "subjects"): {"GET": self._subjects_of_id},
            ("schemas", "ids", "{}", "versions"): {"GET": self._versions_of_id},
            ("schemas", "guids", "{}"): {"GET": self._schema_of_guid},
            ("schemas", "guids", "{}", "ids"): {"GET": self._ids_of_guid},
            ("compatibility", "subjects", "{}", "versions"): {"POST": self._check_all},
            ("compatibility", "subjects", "{}", "versions", "{}"): {"POST": self._check_one},
            ("config",): {"GET": self._settings, "PUT": self._set_settings, "DELETE": self._delete_settings},
            ("config", "{}"): {"GET": self._settings, "PUT": self._set_settings, "DELETE": self._delete_settings},
            ("mode",): {"GET": self._mode, "PUT": self._set_mode, "DELETE": self._delete_mode},
            ("mode", "{}"): {"GET": self._mode, "PUT": self._set_mode, "DELETE": self._delete_mode},
            ("contexts",): {"GET": self._contexts},
            ("contexts", "{}"): {"GET": self._of_context, "DELETE": self._delete_context},
            ("v1", "metadata", "id"): {"GET": self._cluster_id},
            ("v1", "metadata", "version"): {"GET": lambda call: {"version": __version__, "commitId": ""}},
        }
        self._writes = {self._register, self._delete_subject, self._delete_version, self._set_settings} | {
            self._delete_settings, self._set_mode, self._delete_mode, self._delete_context,
        }  # fmt: skip

    def handler(self, method: str, target: Target) -> tuple[Handler, tuple[str, ...]]:
        """Return the handler of a request, and the names in its path. Raises RegistryError: 404, 405."""
        for pattern, methods in self._table.items():
            names = _matched(pattern, target.parts)
            if names is not None:
                handler = methods.get("GET" if method == "HEAD" else method)
                if handler is None:
                    raise RegistryError(405, "HTTP 405 Method Not Allowed")
                return handler, names
        raise RegistryError(404, "HTTP 404 Not Found")

    def is_write(self, handler: Handler) -> bool:
        return handler in self._writes

    def known(self, handler: Handler, call: Call) -> dict[str, Any] | None:
        """Return the response to a registration of a known schema, which writes nothing; else None."""
        if handler != self._register:
            return None
        request = schema_request(call.body)
        found = self._registry.find_registered(
            normalized(call.names[0]), request, normalize=call.target.flag("normalize")
        )
        return None if found is None else self._registered(found, request, call)

    def catch_up(self) -> None:
        """Read the topic up to its end, so that the state has the writes of other nodes. Raises RegistryError."""
        self._registry.catch_up()

    def alias_of(self, subject: str) -> str | None:
        found = (self._state.own_settings(normalized(subject)) or {}).get("alias")
        return qualified_by(subject, found) if found else None

    # ---- subjects and versions

    def _subjects(self, call: Call) -> list[object]:
        target, found = call.target, []
        for name in self._state.subjects(target.text("subjectPrefix", WILDCARD)):
            is_deleted = not self._state.versions(name)
            if is_deleted if target.flag("deletedOnly") else target.flag("deleted") or not is_deleted:
                found.append(name)
        return target.page(found)

    def _look_up(self, call: Call) -> dict[str, Any]:
        subject = normalized(call.names[0])
        request, deleted = schema_request(call.body), call.target.flag("deleted")
        found = self._registry.look_up(subject, request, normalize=call.target.flag("normalize"), deleted=deleted)
        if found is None:
            if not self._state.has(subject, deleted=deleted):
                raise errors.subject_not_found(subject)
            raise errors.schema_not_found()
        return self._shown(found, call)

    def _latest_with_metadata(self, call: Call) -> dict[str, Any]:
        subject, query = normalized(call.names[0]), call.target.query
        wanted = dict(zip(query.get("key", []), query.get("value", []), strict=False))
        versions = self._state.versions(subject, deleted=call.target.flag("deleted"))
        if not versions:
            raise errors.subject_not_found(subject)
        for each in reversed(versions):
            properties = (each.metadata or {}).get("properties") or {}
            if wanted.items() <= properties.items():
                return self._shown(each, call)
        raise errors.schema_not_found()

    def _versions(self, call: Call) -> list[object]:
        subject, target = normalized(call.names[0]), call.target
        only_deleted, deleted = target.flag("deletedOnly"), target.flag("deleted")
        if not self._state.has(subject, deleted=deleted or only_deleted):
            raise errors.subject_not_found(subject)
        versions = self._state.versions(subject, deleted=True)
        if target.flag("deletedAsNegative"):
            return target.page([-each.version if each.deleted else each.version for each in versions])
        if only_deleted:
            return target.page([each.version for each in versions if each.deleted])
        return target.page([each.version for each in versions if deleted or not each.deleted])

    def _found(self, call: Call, *, deleted: bool) -> StoredSchema:
        """Return the version that a path names; of the default context's, also one of the other contexts."""
        subject, number = normalized(call.names[0]), version_number(call.names[1])
        found = self._state.version(subject, number, deleted=deleted)
        if found is None and context_of(subject) == DEFAULT_CONTEXT:
            others = (str(Subject(context, subject)) for context in self._state.contexts[1:])
            versions = (self._state.version(each, number, deleted=deleted) for each in others)
            found = next((each for each in versions if each is not None), None)
        if found is not None:
            return found
        if not self._state.has(subject, deleted=deleted):
            raise errors.subject_not_found(subject)
        raise errors.version_not_found(number)

    def _version(self, call: Call) -> dict[str, Any]:
        return self._shown(self._found(call, deleted=call.target.flag("deleted")), call)

    def _version_text(self, call: Call) -> str:
        return self._text(self._found(call, deleted=call.target.flag("deleted")), call)

    def _referenced_by(self, call: Call) -> list[object]:
        found = self._found(call, deleted=True)
        referrers = self._state.referrers(found.subject, found.version, deleted=call.target.flag("deleted"))
        return call.target.page(sorted({each.id for each in referrers}))

    def _register(self, call: Call) -> dict[str, Any]:
        subject, target, request = normalized(call.names[0]), call.target, schema_request(call.body)
        check_rules(request.rule_set)
        found = self._registry.register(
            subject, request, normalize=target.flag("normalize"), force=target.flag("force")
        )
        return self._registered(found, request, call)

    def _registered(self, found: StoredSchema, request: SchemaRequest, call: Call) -> dict[str, Any]:
        shown = self._shown(found, call)
        response = {"id": found.id, "version": found.version, "guid": found.guid}
        is_as_given = (request.metadata, request.rule_set) == (found.metadata, found.rule_set)
        if is_as_given and request.schema and not call.target.text("format"):
            return response  # confluent-kafka would take the text for what its Protobuf deserializer needs
        return response | {name: each for name, each in shown.items() if name not in ("subject", *response)}

    def _delete_subject(self, call: Call) -> list[int]:
        return self._registry.delete_subject(normalized(call.names[0]), permanent=call.target.flag("permanent"))

    def _delete_version(self, call: Call) -> int:
        subject, number = normalized(call.names[0]), version_number(call.names[1])
        return self._registry.delete_version(subject, number, permanent=call.target.flag("permanent"))

    # ---- schemas

    def _schemas(self, call: Call) -> list[object]:
        target = call.target
        found: list[object] = []
        for subject in self._state.subjects(target.text("subjectPrefix", WILDCARD)):
            versions = self._state.versions(subject, deleted=target.flag("deleted"))
            for each in versions[-1:] if target.flag("latestOnly") else versions:
                if target.text("ruleType") and not _has_rule(each.rule_set, target.text("ruleType")):
                    continue
                found.append(each.json())
        return target.page(found)

    def _of_id(self, call: Call) -> StoredSchema:
        schema_id = int32_of(call.names[0])
        if schema_id is None or schema_id < 0:
            raise RegistryError(404, "HTTP 404 Not Found")
        found = self._state.with_id(schema_id, call.target.text("subject") or None)
        if found is None:
            raise errors.schema_not_found(schema_id)
        return found

    def _schema(self, call: Call) -> dict[str, Any]:
        found = self._of_id(call)
        shown = self._shown(found, call)
        del shown["id"]
        if call.target.flag("fetchMaxId"):
            shown["maxId"] = self._state.largest_id(context_of(found.subject))
        return shown

    def _schema_text(self, call: Call) -> str:
        return self._text(self._of_id(call), call)

    def _users(self, call: Call) -> list[StoredSchema]:
        """Return the versions that have the id of a path."""
        try:
            found = self._of_id(call)
        except RegistryError as error:
            raise errors.schema_not_found() if error.code == errors.schema_not_found().code else error from error
        users = self._state.users_of(context_of(found.subject), found.id)
        return [each for each in users if call.target.flag("deleted") or not each.deleted]

    def _subjects_of_id(self, call: Call) -> list[object]:
        return call.target.page(list(dict.fromkeys(each.subject for each in self._users(call))))

    def _versions_of_id(self, call: Call) -> list[object]:
        return call.target.page([{"subject": each.subject, "version": each.version} for each in self._users(call)])

    def _schema_of_guid(self, call: Call) -> dict[str, Any]:
        for context in self._state.contexts:
            found = self._of_guid(context, call.names[0])
            if found is not None:
                shown = self._shown(found, call)
                return {name: each for name, each in shown.items() if name not in ("subject", "version", "id")}
        raise errors.schema_not_found(call.names[0])

    def _of_guid(self, context: str, guid: str) -> StoredSchema | None:
        schema_id = self._state.id_of_guid(context, guid)
        return None if schema_id is None else next(iter(self._state.users_of(context, schema_id)), None)

    def _ids_of_guid(self, call: Call) -> list[dict[str, Any]]:
        found = ((context, self._state.id_of_guid(context, call.names[0])) for context in self._state.contexts)
        return [{GUIDS_CONTEXT: context, "id": each} for context, each in found if each is not None]

    def _text(self, found: StoredSchema, call: Call) -> str:
        style = call.target.text("format").strip()
        return self._registry.schemas.of_stored(found).formatted(style) if style else found.schema

    def _shown(self, found: StoredSchema, call: Call) -> dict[str, Any]:
        shown = found.json()
        shown["schema"] = self._text(found, call)
        if found.references and call.target.text("referenceFormat") == "qualified":
            shown["references"] = [
                {**each.json(), "subject": qualified_by(found.subject, each.subject)} for each in found.references
            ]
        return shown

    # ---- compatibility

    def _check_one(self, call: Call) -> dict[str, Any]:
        subject, number = normalized(call.names[0]), version_number(call.names[1])
        found = self._state.version(subject, number)
        if found is None and number != LATEST:
            raise errors.version_not_found(number)
        return self._checked(call, subject, [] if found is None else [found])

    def _check_all(self, call: Call) -> dict[str, Any]:
        subject = normalized(call.names[0])
        return self._checked(call, subject, self._state.versions(subject))

    def _checked(self, call: Call, subject: str, previous: list[StoredSchema]) -> dict[str, Any]:
        is_verbose = call.target.flag("verbose")
        try:
            request = schema_request(call.body)
            found = self._registry.check(subject, request, previous, normalize=call.target.flag("normalize"))
        except errors.InvalidSchemaError as error:
            if not is_verbose:
                raise
            found = [error.message]
        return {"is_compatible": not found, **({"messages": found} if is_verbose else {})}

    # ---- settings, modes, contexts

    def _scope(self, call: Call) -> str | None:
        """Return the subject whose settings are meant; None: those of all."""
        if not call.names or Subject.parse(call.names[0]).is_default_context:
            return None
        return normalized(call.names[0])

    def _settings(self, call: Call) -> dict[str, Any]:
        subject = self._scope(call)
        if call.target.flag("defaultToGlobal"):
            return self._state.settings_in_scope(subject)
        found = self._state.settings(subject)
        if found is None:
            assert subject is not None, "the top level has settings"
            raise errors.no_subject_compatibility(subject)
        return found

    def _set_settings(self, call: Call) -> dict[str, Any]:
        subject, changes = self._scope(call), changes_of(call.body)
        for name in RULE_SETS:
            check_rules(changes.get(name))
        if subject is not None and not is_valid(subject, is_of_settings=True):
            raise errors.invalid_subject(subject)
        return as_request(self._registry.update_settings(subject, changes))

    def _delete_settings(self, call: Call) -> dict[str, Any]:
        subject = self._scope(call)
        found = self._state.settings(subject)
        if found is None:
            raise errors.subject_not_found(subject)
        self._registry.delete_settings(subject)
        return found

    def _mode(self, call: Call) -> dict[str, Any]:
        subject = self._scope(call)
        if call.target.flag("defaultToGlobal"):
            return {"mode": self._state.mode_in_scope(subject).value}
        found = self._state.mode(subject)
        if found is None:
            assert subject is not None, "the top level has a mode"
            raise errors.no_subject_mode(subject)
        return {"mode": found.value}

    def _set_mode(self, call: Call) -> dict[str, Any]:
        subject = self._scope(call)
        if subject is not None and not is_valid(subject, is_of_settings=True):
            raise errors.invalid_subject(subject)
        requested = call.body.get("mode") if isinstance(call.body, Mapping) else None
        if not isinstance(requested, str) or requested.upper() not in Mode.__members__:
            raise errors.invalid_mode()
        mode = Mode[requested.upper()]
        if mode is Mode.FORWARD and (subject is None or Subject.parse(subject) != Subject(GLOBAL_CONTEXT, "")):
            raise errors.invalid_mode("Forward mode only supported on global level")
        self._registry.set_mode(subject, mode, force=call.target.flag("force"))
        return {"mode": requested}

    def _delete_mode(self, call: Call) -> dict[str, Any]:
        subject, recursive = self._scope(call), call.target.flag("recursive")
        found = self._state.mode(subject)
        if found is None and not recursive:
            raise errors.subject_not_found(subject)
        self._registry.delete_mode(subject, recursive=recursive)
        return {} if found is None else {"mode": found.value}

    def _contexts(self, call: Call) -> list[object]:
        prefix = call.target.text("contextPrefix")
        return call.target.page([each for each in self._state.contexts if each.startswith(prefix)])

    def _of_context(self, call: Call) -> dict[str, Any]:
        return {}

    def _delete_context(self, call: Call) -> None:
        self._registry.delete_context(call.names[0])

    def _cluster_id(self, call: Call) -> dict[str, Any]:
        cluster_id, group_id = self._ids()
        clusters = {"kafka-cluster": cluster_id, "schema-registry-cluster": group_id}
        return {"scope": {"path": [], "clusters": clusters}, "id": ""}


def _matched(pattern: tuple[str, ...], parts: tuple[str, ...]) -> tuple[str, ...] | None:
    if len(pattern) != len(parts):
        return None
    if any(each not in ("{}", part) for each, part in zip(pattern, parts, strict=True)):
        return None
    return tuple(part for each, part in zip(pattern, parts, strict=True) if each == "{}")


def _has_rule(rule_set: Mapping[str, Any] | None, kind: str) -> bool:
    return any(rule.get("type") == kind for rule in rules_of(rule_set or {}))
