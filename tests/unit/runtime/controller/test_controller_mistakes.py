"""A mistake of the controller's own ends the one request that meets it, which hears of it."""

from typing import Any

from tests.support.hosting import run_scheduled
from tests.unit.runtime.controller.test_controller import Node, on_node


def test_who_does_not_wait_hears_of_any_failure() -> None:
    async def scenario(node: Node) -> None:
        node.quorum.lead()
        results: list[Any] = []
        mistake = ValueError("a mistake")

        def decide(controller: Any, now_ms: int) -> Any:
            raise mistake

        node.controller.write_soon(decide, results.append)
        await run_scheduled()
        assert results == [mistake]

    on_node(scenario)
