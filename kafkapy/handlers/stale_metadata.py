"""Closes connections that request leaders, coordinators or brokers while this node's metadata is stale.

A node whose disk has no room for the metadata log gets no new metadata (runtime/quorum/effect_queue.py). Other brokers
may lead its partitions by then. A client that uses only this node would be sent to the wrong leaders, or back to this
node, until there is room. So after STALE_AFTER_MS its connection is closed, and it tries another broker, as all clients
do after a lost connection. If the metadata names no other active broker, the response is sent nevertheless.

Deviation: Apache Kafka's node stops when its metadata log has no room. Here it goes on, and closes the connection of a
client that requests addresses, because another node has newer metadata.
"""

from typing import TYPE_CHECKING, Final

from kafkapy.handlers.context import CloseConnection

if TYPE_CHECKING:
    from kafkapy.handlers.context import Services

STALE_AFTER_MS: Final = 2000
"""Twice the interval at which a full disk is tried again, so that a short lack of room closes no connection."""


def check_metadata_current(services: "Services") -> None:
    """Raise CloseConnection if the metadata is stale, and another broker is active."""
    if services.quorum.effects.waited_ms < STALE_AFTER_MS:
        return
    brokers, node_id = services.metadata.image.cluster.brokers, services.node_id
    if any(broker.is_active for other_id, broker in brokers.items() if other_id != node_id):
        raise CloseConnection("the metadata is stale, because its disk is full: another broker has newer metadata")
