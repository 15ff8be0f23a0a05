"""The controller on its quorum: decide -> append -> replay -> answer once committed; committed images for the broker.

(signatures only yet; the body follows)
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from kafkapy.machine import Decision
from kafkapy.metadata.controller import Controller
from kafkapy.metadata.delta import MetadataDelta
from kafkapy.metadata.image import MetadataImage

R = TypeVar("R")

ImageListener = Callable[[MetadataDelta, MetadataImage], None]
"""Called with each committed image and what it changed, in order, on the loop's thread."""


class ControllerRuntime(Protocol):
    @property
    def image(self) -> MetadataImage:
        """The last committed image."""
        ...

    @property
    def is_active(self) -> bool:
        """Whether this node leads the quorum and may decide."""
        ...

    def add_image_listener(self, listener: ImageListener) -> None: ...

    async def write(self, decide: Callable[[Controller, int], Decision[Any, R]]) -> R:
        """Decide on the controller's tables (given them and the monotonic time in ms), answer once committed.

        Raises ApiError NOT_CONTROLLER where this node is not (or no longer) the active controller.
        """
        ...
