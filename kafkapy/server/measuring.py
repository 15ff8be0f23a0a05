"""Puts the counting of requests between a reactor and its router, on nodes with an admin listener."""

from typing import TYPE_CHECKING, cast

from kafkapy.protocol.serving import Coalesce, Route

if TYPE_CHECKING:
    from kafkapy.metrics.registry import NodeCounts
    from kafkapy.serving.router import Router


def measured(
    router: "Router", counts: "NodeCounts | None", *, are_fetches_of_followers: bool = False
) -> tuple[Route, Coalesce]:
    """Return the functions that serve requests: the router's own, unless requests are counted."""
    if counts is None:
        return router.route, router.coalesce
    from kafkapy.serving.measured_router import MeasuredRouter  # not needed by most nodes

    router.on_response = counts.requests.count_errors
    found = MeasuredRouter(
        router.route, router.coalesce, counts.requests, are_fetches_of_followers=are_fetches_of_followers
    )
    return cast(Route, found.route), found.coalesce
