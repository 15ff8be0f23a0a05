"""What is told to those who may not do something to the cluster, where the response has room for a message.

Apache Kafka's words: the error's own for changes of voters; none for DescribeClientQuotas; for the others it prints the
request (a deviation).
"""

from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.handlers.cluster import describe_controllers, raft_requests
from kafkapy.handlers.security import alter_user_scram_credentials, describe_client_quotas
from kafkapy.protocol.messages.add_raft_voter_request import AddRaftVoterRequest
from kafkapy.protocol.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from kafkapy.protocol.messages.describe_client_quotas_request import DescribeClientQuotasRequest
from kafkapy.protocol.messages.describe_cluster_request import DescribeClusterRequest
from kafkapy.security.authorizer import AclOperation
from tests.support.controllers import Cluster
from tests.support.metadata_services import Deny, context, response_of, services

REFUSED = (31, "Cluster authorization failed.")
ADD_RAFT_VOTER, DESCRIBE_CLUSTER = 80, 60


def requested(handler: Any, request: Any, operation: AclOperation, api_key: int = 0) -> Any:
    """Return the response, or the error of the whole, of somebody who may not do the operation."""
    by = context(0)
    by.api_key = api_key
    cluster = Cluster()
    cluster.start_broker(1)
    try:
        return response_of(handler.handle(services(cluster, authorizer=Deny((operation, ""))), by, request))
    except ApiError as error:
        return error


@pytest.mark.parametrize(
    ("handler", "request_class", "api_key"),
    [(raft_requests, AddRaftVoterRequest, ADD_RAFT_VOTER), (describe_controllers, DescribeClusterRequest, 60)],
)
def test_an_error_of_the_whole_has_a_message(handler, request_class, api_key) -> None:
    error = requested(handler, request_class(), AclOperation.ALTER, api_key)
    assert (error.code, error.message) == REFUSED


def test_each_user_of_a_change_of_scram_credentials_is_refused() -> None:
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name, mechanism=1) for name in ("b", "a")]
    )
    results = requested(alter_user_scram_credentials, request, AclOperation.ALTER).results
    assert [(each.user, each.error_code, each.error_message) for each in results] == [("a", *REFUSED), ("b", *REFUSED)]


def test_quotas_are_refused_without_a_message() -> None:
    response = requested(describe_client_quotas, DescribeClientQuotasRequest(), AclOperation.DESCRIBE_CONFIGS)
    assert (response.error_code, response.error_message, response.entries) == (31, None, None)
