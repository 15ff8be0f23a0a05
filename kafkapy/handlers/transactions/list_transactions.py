"""ListTransactions 0-2: the transactional ids that this broker coordinates and that pass the filters (KIP-664).

v1: a filter by minimum duration (KIP-994). v2: a filter by a pattern that must match the whole id (KIP-1152);
INVALID_REGULAR_EXPRESSION. Unknown state names are returned in the response.
"""

from functools import partial

from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.protocol.messages.list_transactions_request import ListTransactionsRequest
from kafkapy.protocol.messages.list_transactions_response import ListTransactionsResponse
from kafkapy.security.authorizer import AclOperation, ResourceType
from kafkapy.transaction.filters import TransactionFilters


async def handle(
    services: Services, context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    filters = TransactionFilters.of(request)
    now_ms = services.clock.wall_ms()
    way = walk(services, context)
    found = await services.transactions.read_all(lambda shard: shard.list_transactions(filters, now_ms), way)
    may_see = partial(services.authorizer.authorize, context, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
    return ListTransactionsResponse(
        unknown_state_filters=filters.unknown_states,
        transaction_states=[state async for state in way.over(found) if may_see(state.transactional_id)],
    )
