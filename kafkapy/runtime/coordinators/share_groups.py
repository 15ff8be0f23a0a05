"""The parts of share groups on a broker, made when they are first needed: most brokers have no share groups."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kafkapy.metadata.topic_names import SHARE_STATE_TOPIC

if TYPE_CHECKING:
    from kafkapy.metadata.delta import MetadataDelta
    from kafkapy.metadata.image import MetadataImage
    from kafkapy.runtime.coordinators.share_coordinator import ShareCoordinator
    from kafkapy.runtime.coordinators.share_persister import RoutedPersister


class ShareGroups:
    """The share coordinator, and the persister that finds it wherever it is."""

    def __init__(
        self,
        new_coordinator: "Callable[[], ShareCoordinator]",
        new_persister: "Callable[[ShareCoordinator], RoutedPersister]",
    ) -> None:
        self._new_coordinator = new_coordinator
        self._new_persister = new_persister
        self._coordinator: ShareCoordinator | None = None
        self._persister: RoutedPersister | None = None
        self._is_started = False

    @property
    def coordinator(self) -> "ShareCoordinator":
        """The states of share partitions that this broker coordinates."""
        if self._coordinator is None:
            self._coordinator = self._new_coordinator()
            if self._is_started:
                self._coordinator.start()
        return self._coordinator

    @property
    def persister(self) -> "RoutedPersister":
        """Keeps the state of share partitions that this broker leads, with whichever broker coordinates them."""
        if self._persister is None:
            self._persister = self._new_persister(self.coordinator)
        return self._persister

    @property
    def made(self) -> "ShareCoordinator | None":
        """The coordinator if it was needed so far."""
        return self._coordinator

    @property
    def loading_count(self) -> int:
        return 0 if self._coordinator is None else self._coordinator.loading_count

    def start(self) -> None:
        """Start the periodic tasks, of what is there and of what will be made."""
        self._is_started = True
        if self._coordinator is not None:
            self._coordinator.start()

    def apply_delta(self, delta: "MetadataDelta", image: "MetadataImage") -> Iterator[None]:
        """Apply a metadata change, once the coordinator's topic exists; each next() does one step."""
        if self._coordinator is not None or SHARE_STATE_TOPIC in image.topics.by_name:
            yield from self.coordinator.apply_delta(delta, image)

    async def close(self) -> None:
        """Fail pending requests; cancel all tasks."""
        self._is_started = False
        if self._persister is not None:
            self._persister.close()
        if self._coordinator is not None:
            await self._coordinator.close()
