"""DescribeUserScramCredentials 0: the mechanisms and iterations of users, of all of them if none is named. KIP-554.

As in Apache Kafka, the message of a success is empty, and that of a refused request null; a request whose response
would have a message too long for its field gets UNKNOWN_SERVER_ERROR. Deviation: Apache Kafka never answers a request
for all users, whose array is null, without the right. Here it is refused, because the client would wait.
"""

from typing import Final

from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.metadata.scram_types import BY_CODE
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_user_scram_credentials_request import DescribeUserScramCredentialsRequest
from kafkapy.protocol.messages.describe_user_scram_credentials_response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType

MAX_MESSAGE_BYTES: Final = 32_767
"""The longest string of a field. The longest name of a user has as many bytes, and a message has more than the name."""


async def handle(
    services: Services, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    if not services.authorizer.authorize(context, AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return _refused(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    credentials = services.metadata.image.scram
    counts: dict[str, int] = {}
    if request.users:
        for user in request.users:
            counts[user.name] = counts.get(user.name, 0) + 1
    else:
        counts = dict.fromkeys((name for _, name in credentials), 1)
    infos = {
        name: [
            CredentialInfo(mechanism=mechanism, iterations=credentials[mechanism, name].iterations)
            for mechanism in BY_CODE
            if (mechanism, name) in credentials
        ]
        async for name in walk(services, context).over(counts)
    }
    results = [_result(name, count, infos[name]) for name, count in counts.items()]
    if any(each.error_message and len(each.error_message.encode()) > MAX_MESSAGE_BYTES for each in results):
        return _refused(request, ErrorCode.UNKNOWN_SERVER_ERROR)
    return DescribeUserScramCredentialsResponse(results=results)


def _refused(
    request: DescribeUserScramCredentialsRequest, error_code: ErrorCode
) -> DescribeUserScramCredentialsResponse:
    code = int(error_code)
    refused = [DescribeUserScramCredentialsResult(error_code=code, error_message=None) for _ in request.users or ()]
    return DescribeUserScramCredentialsResponse(error_code=code, error_message=None, results=refused)


def _result(name: str, count: int, infos: list[CredentialInfo]) -> DescribeUserScramCredentialsResult:
    if count > 1:
        code = ErrorCode.DUPLICATE_RESOURCE
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    elif not infos:
        code = ErrorCode.RESOURCE_NOT_FOUND
        message = f"Attempt to describe a user credential that does not exist: {name}"
    else:
        return DescribeUserScramCredentialsResult(user=name, credential_infos=infos)
    return DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=message)
