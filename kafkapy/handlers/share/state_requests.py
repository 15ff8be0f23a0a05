"""Shared by the requests about states of share partitions: authorization, and empty requests.

They are for brokers, and need CLUSTER_ACTION. Without it each partition gets CLUSTER_AUTHORIZATION_FAILED. A request
without a group id, or with a topic without partitions, gets an empty response.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kafkapy.handlers.context import RequestContext, Services
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.runtime.turns import Walk
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType
from kafkapy.share.persister import ItemT, ResultT
from kafkapy.share.state_messages import Exchange
from kafkapy.types import Uuid


async def respond(
    services: Services,
    context: RequestContext,
    way: Walk,
    request: Any,
    exchange: Exchange[ItemT, ResultT],
    ask: Callable[[str, Sequence[ItemT]], Awaitable[list[ResultT]]],
    refused: Callable[[Uuid, int, int, str], ResultT],
) -> Any:
    """Return the response to a request. `ask` calls the coordinator, `refused` returns a result with an error."""
    items = [
        exchange.item(topic.topic_id, each)
        async for topic in way.over(request.topics)
        async for each in way.over(topic.partitions)
    ]
    if not services.authorizer.authorize(context, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return exchange.response_of([refused(each.topic_id, each.partition, code, code.message) for each in items])
    if not request.group_id or not all(topic.partitions for topic in request.topics):
        return exchange.response_of([])
    return exchange.response_of(await ask(request.group_id, items))
