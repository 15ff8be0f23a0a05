"""The errors of the HTTP API: status, code and message, as in Confluent's Schema Registry."""

from typing import Final

from kafkapy.errors import KafkapyError

INVALID_SCHEMA: Final = 42201
INVALID_COMPATIBILITY_TEXT: Final = (
    "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
    "forward_transitive, and full_transitive"
)
INVALID_MODE_TEXT: Final = "Invalid mode. Valid values are READWRITE, READONLY, IMPORT and FORWARD."


class RegistryError(KafkapyError):
    """A response with an error. `code`: five digits, whose first three are the HTTP status; or the status alone."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        return self.code if self.code < 1000 else self.code // 100


class InvalidSchemaError(RegistryError):
    """A schema that cannot be parsed, or with missing references."""

    def __init__(self, message: str) -> None:
        super().__init__(INVALID_SCHEMA, message)


def unreadable(message: str) -> RegistryError:
    """A body that is not JSON, or has values of other types: 400, as Confluent's for Jackson's exceptions."""
    return RegistryError(400, message)


def subject_not_found(subject: str | None) -> RegistryError:
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RegistryError:
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found(named: int | str | None = None) -> RegistryError:
    return RegistryError(40403, "Schema not found" if named is None else f"Schema {named} not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(40404, f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently")


def subject_not_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    text = f"Subject '{subject}' Version {version} was soft deleted.Set permanent=true to delete permanently"
    return RegistryError(40406, text)


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    text = f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    return RegistryError(40407, text)


def no_subject_compatibility(subject: str) -> RegistryError:
    return RegistryError(40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def no_subject_mode(subject: str) -> RegistryError:
    return RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, reasons: list[str]) -> RegistryError:
    details = f"[{', '.join(reasons)}]"
    text = f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: {details}'
    return RegistryError(40901, text)


def invalid_version(version: str) -> RegistryError:
    allowed = 'Allowed values are between [1, 2^31-1] and the string "latest"'
    return RegistryError(42202, f"The specified version '{version}' is not a valid version id. {allowed}")


def invalid_compatibility() -> RegistryError:
    return RegistryError(42203, INVALID_COMPATIBILITY_TEXT)


def invalid_mode(text: str = INVALID_MODE_TEXT) -> RegistryError:
    return RegistryError(42204, text)


def not_permitted(message: str) -> RegistryError:
    return RegistryError(42205, message)


def reference_exists(subject: str, version: int) -> RegistryError:
    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}"
    return RegistryError(42206, f"One or more references exist to the schema {key}.")


def invalid_subject(subject: str) -> RegistryError:
    return RegistryError(42208, f"The specified subject '{subject}' is not a valid.")


def invalid_rule_set(message: str) -> RegistryError:
    return RegistryError(42210, message)


def context_not_empty(context: str) -> RegistryError:
    return RegistryError(42211, f"The specified context '{context}' is not empty.")


def store_error(message: str) -> RegistryError:
    return RegistryError(50001, message)


def timed_out(message: str) -> RegistryError:
    return RegistryError(50002, message)


class LeaderUnreachableError(RegistryError):
    """No connection to the leader: nothing was sent, so that the request may be sent again."""

    def __init__(self, message: str) -> None:
        super().__init__(50003, message)


def forwarding_failed(message: str) -> RegistryError:
    return RegistryError(50003, message)


def unknown_leader() -> RegistryError:
    return RegistryError(50004, "Leader not known.")
