"""DescribeUserScramCredentials 0: the mechanisms and iterations of users, of all of them if none is named. KIP-554.

As in Apache Kafka, the message of a success is empty, and that of a refused request null. Deviation: without the right,
a request for all users is refused; Apache Kafka never answers one whose array of users is null.
"""

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


async def handle(
    services: Services, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    if not services.authorizer.authorize(context, AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        refused = [DescribeUserScramCredentialsResult(error_code=code, error_message=None) for _ in request.users or ()]
        return DescribeUserScramCredentialsResponse(error_code=code, error_message=None, results=refused)
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
    return DescribeUserScramCredentialsResponse(results=results)


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
