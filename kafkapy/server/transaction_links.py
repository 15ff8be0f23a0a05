"""A node's connections to other brokers' coordinators and leaders; each is made when it is first needed."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkapy.runtime.coordinators.remote_verification import RemoteGate

if TYPE_CHECKING:
    from kafkapy.metadata.image import MetadataImage
    from kafkapy.runtime.broker_channels import BrokerChannels
    from kafkapy.runtime.coordinators.markers import MarkerSink
    from kafkapy.runtime.peer import Peer


class TransactionLinks:
    """Creates and closes them. Verification requests and markers have separate connections, as in Kafka."""

    def __init__(
        self,
        *,
        node_id: int,
        listener_name: str,
        request_timeout_ms: int,
        image: "Callable[[], MetadataImage]",
        new_peer: "Callable[[str, int], Peer]",
    ) -> None:
        """`listener_name`: inter.broker.listener.name. `image`: returns the newest metadata."""
        self._node_id = node_id
        self._listener_name = listener_name
        self._request_timeout_ms = request_timeout_ms
        self._image = image
        self._new_peer = new_peer
        self._channels: list[BrokerChannels] = []

    def marker_sink(self, local: "MarkerSink") -> "MarkerSink":
        """Return a sink that writes markers to the leaders of partitions; `local` is used for those led here."""
        from kafkapy.runtime.coordinators.markers import RoutedMarkers  # most brokers have no transactions

        return RoutedMarkers(local, self.new_channels(), node_id=self._node_id, image=self._image)

    def remote_gate(self) -> RemoteGate:
        """Return the gate that asks coordinators on other brokers."""
        return RemoteGate(self.new_channels(), timeout_ms=self._request_timeout_ms)

    def close(self) -> None:
        """Close the connections; pending requests fail."""
        for channels in self._channels:
            channels.close()

    def new_channels(self) -> "BrokerChannels":
        """Return connections to brokers, which `close` closes."""
        channels = self.new_channels_of_caller()
        self._channels.append(channels)
        return channels

    def new_channels_of_caller(self) -> "BrokerChannels":
        """Return connections to brokers that the caller closes: share groups write states until after `close`."""
        from kafkapy.runtime.broker_channels import BrokerChannels

        return BrokerChannels(image=self._image, listener_name=self._listener_name, new_peer=self._new_peer)
