"""Connections to other brokers, by broker id. Each follows the broker's address in the metadata.

Each purpose has a BrokerChannels of its own, so that its requests do not wait behind others. A request to a broker that
hangs fails when the controller fences that broker, not only after the request's time-out.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafkapy.protocol.primitives import Message
from kafkapy.runtime.peer import NoResponseError, Peer

if TYPE_CHECKING:
    from kafkapy.metadata.image import MetadataImage

ADDRESS_CHECK_S: Final = 0.1
"""How often the address of a broker is checked while a request to it is pending."""


class BrokerChannels:
    """Sends requests to other brokers; requests to one broker may be pipelined."""

    def __init__(
        self, *, image: "Callable[[], MetadataImage]", listener_name: str, new_peer: Callable[[str, int], Peer]
    ) -> None:
        """`image`: returns the newest metadata. `listener_name`: inter.broker.listener.name."""
        self._image = image
        self._listener_name = listener_name
        self._new_peer = new_peer
        self._peers: dict[int, Peer] = {}
        self._is_closed = False

    async def send_request(
        self,
        broker_id: int,
        api_key: int,
        build: Callable[[int], Message],
        *,
        versions: tuple[int, int],
        timeout_ms: int,
    ) -> Message:
        """Send the request `build(version)`; return the response. Raises NoResponseError, also if the broker is fenced.

        versions: our lowest and highest supported version.
        """
        address = self._address_of(broker_id)
        if address is None or self._is_closed:
            raise NoResponseError(f"broker {broker_id}", is_unsupported=False)
        peer = self._peer_at(broker_id, address)
        answered = peer.send_request(api_key, build, versions=versions, timeout_ms=timeout_ms)
        while not answered.done():
            await asyncio.wait({answered}, timeout=ADDRESS_CHECK_S)
            if not answered.done() and self._address_of(broker_id) != address:
                peer.close()
        return answered.result()

    def close(self) -> None:
        """Close all connections; pending requests fail."""
        self._is_closed = True
        peers, self._peers = self._peers, {}
        for peer in peers.values():
            peer.close()

    def _address_of(self, broker_id: int) -> tuple[str, int] | None:
        """Return the broker's address on the inter-broker listener; None if it is fenced or not registered."""
        broker = self._image().cluster.brokers.get(broker_id)
        endpoint = broker.endpoints.get(self._listener_name) if broker is not None and not broker.fenced else None
        return (endpoint.host, endpoint.port) if endpoint is not None else None

    def _peer_at(self, broker_id: int, address: tuple[str, int]) -> Peer:
        peer = self._peers.get(broker_id)
        if peer is None or peer.is_closed or (peer.host, peer.port) != address:
            if peer is not None:
                peer.close()
            peer = self._peers[broker_id] = self._new_peer(*address)
        return peer
