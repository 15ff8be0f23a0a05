"""The share partitions in use on a broker, made at the first request of a share group: most brokers have none."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafkapy.config.dynamic import DynamicConfig
from kafkapy.metadata.image import RESOURCE_GROUP

if TYPE_CHECKING:
    from kafkapy.config.share import ShareConfig
    from kafkapy.metadata.image import ConfigsImage, MetadataImage
    from kafkapy.runtime.share.share_partitions import SharePartitions, ShareParts
    from kafkapy.share.group_settings import GroupShareSettings

MAX_KEPT_SETTINGS: Final = 1000
"""Share groups whose settings are cached; clients may name new ones for ever. With one more, all are removed."""


class ShareReads:
    """Makes SharePartitions when they are first needed, and ends the sessions of connections that close."""

    def __init__(self, new_parts: "Callable[[], ShareParts]", max_sessions: Callable[[], int]) -> None:
        """max_sessions(): group.share.max.share.sessions."""
        self._new_parts = new_parts
        self._max_sessions = max_sessions
        self._partitions: SharePartitions | None = None

    def partitions(self) -> "SharePartitions":
        if self._partitions is None:
            from kafkapy.runtime.share.share_partitions import SharePartitions

            self._partitions = SharePartitions(self._new_parts(), self._max_sessions())
        return self._partitions

    @property
    def made(self) -> "SharePartitions | None":
        """The share partitions if there have been any."""
        return self._partitions

    def disconnected(self, connection_id: str) -> None:
        if self._partitions is not None:
            self._partitions.connection_closed(connection_id)

    def apply_image(self, image: "MetadataImage") -> None:
        """End all sessions if the cluster has no share groups any more."""
        if self._partitions is not None and not image.features.has_share_groups:
            self._partitions.end_all()

    async def close(self) -> None:
        """Answer waiting fetches; cancel loads and writes."""
        if self._partitions is not None:
            await self._partitions.close()


class ShareSettings:
    """The settings of share groups by the current configuration; kept until any configuration changes."""

    def __init__(self, dynamic_config: DynamicConfig, image: "Callable[[], MetadataImage]") -> None:
        self._dynamic_config = dynamic_config
        self._image = image
        self._of: tuple[ShareConfig, ConfigsImage, int] | None = None
        self._seen: MetadataImage | None = None
        """The image that the settings were last compared with: nothing of it changes."""
        self._settings: dict[str, GroupShareSettings] = {}

    def of(self, group_id: str) -> "GroupShareSettings":
        image, config = self._image(), self._dynamic_config.current.share
        if image is not self._seen or self._of is None or self._of[0] is not config:
            self._compare(image, config)
        settings = self._settings.get(group_id)
        if settings is None:
            from kafkapy.share.group_settings import group_share_settings

            own = image.configs.of(RESOURCE_GROUP, group_id)
            settings = group_share_settings(config, own, image.features.share_version)
            if len(self._settings) >= MAX_KEPT_SETTINGS:
                self._settings = {}
            self._settings[group_id] = settings
        return settings

    def _compare(self, image: "MetadataImage", config: "ShareConfig") -> None:
        """Forget all settings if what they are made of has changed."""
        level = image.features.share_version
        known = self._of
        if known is None or known[0] is not config or known[1] is not image.configs or known[2] != level:
            self._of = (config, image.configs, level)
            self._settings = {}
        self._seen = image
