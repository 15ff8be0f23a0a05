"""The client quotas of the metadata, for the handlers that enforce them."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkapy.handlers.context import Services
    from kafkapy.metadata.image import MetadataImage, QuotaEntity


def apply_quotas(services: "Services", image: "MetadataImage", changed: "Iterable[QuotaEntity]") -> None:
    """Give the handlers the quotas of entities that changed; while there are none to enforce, they have none."""
    from kafkapy.security.quotas import ClientQuotas  # most brokers have none

    quotas = services.client_quotas
    if quotas is None:
        config = services.config.quota
        quotas = ClientQuotas(config.quota_window_num, config.quota_window_size_seconds * 1000)
        changed = image.client_quotas
    for entity in changed:
        quotas.set_entity(entity, image.client_quotas.get(entity))
    services.client_quotas = None if quotas.is_empty else quotas
