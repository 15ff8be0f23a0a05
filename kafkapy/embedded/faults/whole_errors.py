"""Responses that say that a request has failed as a whole, and the versions of an API that have room for that.

Most have one error code. The responses to AlterClientQuotas and AlterUserScramCredentials have none: there each entity
and each user of the request has the error, as when Apache Kafka refuses all of a request.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkapy.embedded.faults.shapes import level_of, put_error
from kafkapy.protocol.api import APIS, response_type
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.primitives import EncodeError

if TYPE_CHECKING:
    from kafkapy.protocol.messages.alter_client_quotas_request import AlterClientQuotasRequest
    from kafkapy.protocol.messages.alter_client_quotas_response import AlterClientQuotasResponse
    from kafkapy.protocol.messages.alter_user_scram_credentials_request import AlterUserScramCredentialsRequest
    from kafkapy.protocol.messages.alter_user_scram_credentials_response import AlterUserScramCredentialsResponse


def failed_response(request: Any, error: ErrorCode) -> Any:
    """Return the response to a request of which nothing was done."""
    make = ITEMIZED.get(APIS[request.API_KEY].name)
    if make is not None:
        return make(request, error)
    response = response_type(request.API_KEY)()
    put_error(response, error)
    return response


def versions_with_room(api_key: int) -> list[int]:
    """Return at which versions a response of the API can say that the request, or a part of it, has failed.

    DescribeLogDirs before 3 and ElectLeaders 0 have no error code for the request.
    """
    api = APIS[api_key]
    versions = range(api.min_version, api.max_version + 1)
    return [version for version in versions if level_of(api.name, version) or _has_room(api_key, version)]


def _has_room(api_key: int, version: int) -> bool:
    """Return whether an error of the whole request survives a response's encoding at this version."""
    if APIS[api_key].name in ITEMIZED:
        return True
    response: Any = response_type(api_key)()
    if "error_code" not in response.field_names():
        return False
    put_error(response, ErrorCode.UNKNOWN_SERVER_ERROR)
    try:
        decoded: Any = response_type(api_key).decode(response.encode(version), version)
    except EncodeError:
        return False
    return bool(decoded.error_code)


def _failed_quotas(request: "AlterClientQuotasRequest", error: ErrorCode) -> "AlterClientQuotasResponse":
    """Return a response in which each entity has the error."""
    from kafkapy.protocol.messages.alter_client_quotas_response import AlterClientQuotasResponse, EntityData, EntryData

    return AlterClientQuotasResponse(
        entries=[
            EntryData(
                error_code=int(error),
                error_message=error.message,
                entity=[
                    EntityData(entity_type=part.entity_type, entity_name=part.entity_name) for part in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )


def _failed_credentials(
    request: "AlterUserScramCredentialsRequest", error: ErrorCode
) -> "AlterUserScramCredentialsResponse":
    """Return a response in which each user has the error, once, however many of its credentials are altered."""
    from kafkapy.protocol.messages.alter_user_scram_credentials_response import (
        AlterUserScramCredentialsResponse,
        AlterUserScramCredentialsResult,
    )

    users = dict.fromkeys([*(each.name for each in request.deletions), *(each.name for each in request.upsertions)])
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=int(error), error_message=error.message)
            for user in users
        ]
    )


ITEMIZED: Final[Mapping[str, Callable[[Any, ErrorCode], Any]]] = {
    "AlterClientQuotas": _failed_quotas,
    "AlterUserScramCredentials": _failed_credentials,
}
"""By API: makes the response, of those that have an error for each item and none for all."""
