"""AlterUserScramCredentials 0: create, change and delete SCRAM credentials, each user with a result. KIP-554.

The salted passwords in the request are neither logged nor stored in the metadata.
"""

from kafkapy.errors import ApiError
from kafkapy.handlers.cluster_access import check_cluster
from kafkapy.handlers.context import ControllerServices, RequestContext, Services
from kafkapy.metadata.scram import UserResult
from kafkapy.protocol.messages.alter_user_scram_credentials_request import AlterUserScramCredentialsRequest
from kafkapy.protocol.messages.alter_user_scram_credentials_response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from kafkapy.security.authorizer import AclOperation


async def handle(
    services: Services | ControllerServices, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    try:
        check_cluster(services, context, AclOperation.ALTER)
        results = await services.metadata_changes.change(lambda controller, _: controller.scram.decide_alter(request))
    except ApiError as error:
        deleted, upserted = ([each.name for each in part] for part in (request.deletions, request.upsertions))
        results = [UserResult(user, error) for user in sorted({*deleted, *upserted}, key=_utf_16_units)]
    return AlterUserScramCredentialsResponse(results=[_result(each) for each in results])


def _utf_16_units(user: str) -> bytes:
    """Return the key by which Java sorts strings."""
    return user.encode("utf-16-be", "surrogatepass")


def _result(outcome: UserResult) -> AlterUserScramCredentialsResult:
    if outcome.error is None:
        return AlterUserScramCredentialsResult(user=outcome.user, error_message=None)
    return AlterUserScramCredentialsResult(
        user=outcome.user, error_code=int(outcome.error.code), error_message=outcome.error.message
    )
