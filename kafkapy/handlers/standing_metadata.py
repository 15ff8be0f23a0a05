"""Close connections that ask for leaders, coordinators or brokers while the metadata here stands still.

A node whose disk has no room for the metadata log learns nothing more (runtime/quorum/effect_queue.py). Others may lead
its partitions by then. A client that asks only this node would be sent to the wrong leaders, or back to this one, until
there is room. So after STANDS_STILL_MS its connection is closed. It then asks another broker, as all clients do that
lose one. If the metadata names no other broker, the response is as good as there is.

Deviation: Apache Kafka's node stops when its metadata log has no room. Here it goes on, and closes the connection of a
client that asks where to go, because another node knows better.
"""

from typing import TYPE_CHECKING, Final

from kafkapy.handlers.context import CloseConnection

if TYPE_CHECKING:
    from kafkapy.handlers.context import Services

STANDS_STILL_MS: Final = 2000
"""Twice the interval at which a full disk is tried again: room that is soon there again closes no connection."""


def check_metadata_moves(services: "Services") -> None:
    """Raise CloseConnection if the metadata has stood still for long, and another broker could answer in our place."""
    if services.quorum.effects.waited_ms < STANDS_STILL_MS:
        return
    brokers, node_id = services.metadata.image.cluster.brokers, services.node_id
    if any(broker.is_active for other_id, broker in brokers.items() if other_id != node_id):
        raise CloseConnection("the metadata stands still, because its disk is full: another broker is to be asked")
