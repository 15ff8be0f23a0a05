"""The controller's table of SCRAM credentials: creating, changing and deleting them. KIP-554, KIP-900.

A record has no password, but the stored key and server key derived from the salted one. Messages are Apache Kafka's. A
request may name a user only once, even for two mechanisms (DUPLICATE_RESOURCE); its other changes are carried out.
Deviation: Apache Kafka fails a request with more than MAX_RECORDS_PER_OPERATION changes with UNKNOWN_SERVER_ERROR. Here
it is POLICY_VIOLATION for all of its users, because that says what to change.
"""

from collections.abc import Callable, Mapping

from kafkapy.errors import ApiError
from kafkapy.machine import Decision
from kafkapy.metadata.features import MV_3_5_IV2, FeatureControl
from kafkapy.metadata.limits import check_operation_size
from kafkapy.metadata.scram_types import BY_CODE, MAX_ITERATIONS, MIN_ITERATIONS, credential_record
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kafkapy.protocol.messages.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from kafkapy.protocol.messages.user_scram_credential_record import UserScramCredentialRecord

Record = UserScramCredentialRecord | RemoveUserScramCredentialRecord
Change = ScramCredentialDeletion | ScramCredentialUpsertion


class UserResult(NamedTuple):
    """The result of one user's change; `error` is None if it is carried out."""

    user: str
    error: ApiError | None


class ScramControl:
    """The credentials as of the last record. `decide_alter` leaves them as they are; `replay` changes them."""

    def __init__(
        self, features: FeatureControl, credentials: Mapping[tuple[int, str], UserScramCredentialRecord]
    ) -> None:
        """`credentials`: those of the image from which the controller was loaded."""
        self._features = features
        self._by_key = dict(credentials)

    @property
    def by_key(self) -> Mapping[tuple[int, str], UserScramCredentialRecord]:
        """By (mechanism, user name)."""
        return self._by_key

    def decide_alter(self, request: AlterUserScramCredentialsRequest) -> Decision[Record, list[UserResult]]:
        """Delete and upsert credentials; the response has each user's result, successes first, as Apache Kafka's.

        Raises ApiError POLICY_VIOLATION for more than MAX_RECORDS_PER_OPERATION records.
        """
        errors: dict[str, ApiError] = {}
        changes: dict[str, Change] = {}
        self._gather(request.deletions, self._refuse_deletion, changes, errors)
        self._gather(request.upsertions, _refuse_upsertion, changes, errors)
        for user in [user for user, change in changes.items() if not _has_password(change)]:
            del changes[user]
            errors[user] = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
        check_operation_size(len(changes))
        assert not changes.keys() & errors.keys(), "a user's credential is changed or refused"
        results = [UserResult(user, None) for user in changes]
        results += [UserResult(user, error) for user, error in errors.items()]
        return Decision(results, [_record(change) for change in changes.values()], is_atomic=True)

    def _gather(
        self,
        wanted: "list[ScramCredentialDeletion] | list[ScramCredentialUpsertion]",
        refuse: Callable[[Change], ApiError | None],
        changes: dict[str, Change],
        errors: dict[str, ApiError],
    ) -> None:
        for change in wanted:
            user = change.name
            if user in errors:
                continue
            error = self._refuse(user, changes) or refuse(change)
            if error is None:
                changes[user] = change
            else:
                changes.pop(user, None)
                errors[user] = error

    def _refuse(self, user: str, changes: Mapping[str, Change]) -> ApiError | None:
        if user in changes:
            message = "A user credential cannot be altered twice in the same request"
            return ApiError(ErrorCode.DUPLICATE_RESOURCE, message)
        if self._features.metadata_version < MV_3_5_IV2:
            message = "The current metadata.version does not support SCRAM"
            return ApiError(ErrorCode.UNSUPPORTED_VERSION, message)
        return None

    def _refuse_deletion(self, deletion: Change) -> ApiError | None:
        if (error := _refuse_name(deletion)) is not None:
            return error
        if (deletion.mechanism, deletion.name) not in self._by_key:
            message = "Attempt to delete a user credential that does not exist"
            return ApiError(ErrorCode.RESOURCE_NOT_FOUND, message)
        return None

    # -- replay ---------------------------------------------------------------------------------------------------

    def replay(self, record: UserScramCredentialRecord) -> None:
        self._by_key[record.mechanism, record.name] = record

    def replay_remove(self, record: RemoveUserScramCredentialRecord) -> None:
        removed = self._by_key.pop((record.mechanism, record.name), None)
        assert removed is not None, "a SCRAM credential is removed that does not exist"


def _record(change: Change) -> Record:
    if isinstance(change, ScramCredentialDeletion):
        return RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)
    return credential_record(
        change.name,
        BY_CODE[change.mechanism],
        salt=bytes(change.salt),
        salted=bytes(change.salted_password),
        iterations=change.iterations,
    )


def _has_password(change: Change) -> bool:
    """Whether keys can be derived: Java has no HMAC with an empty key, so that Apache Kafka fails here."""
    return isinstance(change, ScramCredentialDeletion) or len(change.salted_password) > 0


def _refuse_name(change: Change) -> ApiError | None:
    if not change.name:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in BY_CODE:
        return ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return None


def _refuse_upsertion(upsertion: Change) -> ApiError | None:
    assert isinstance(upsertion, ScramCredentialUpsertion)
    if (error := _refuse_name(upsertion)) is not None:
        return error
    if upsertion.iterations < MIN_ITERATIONS:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if upsertion.iterations > MAX_ITERATIONS:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    return None
