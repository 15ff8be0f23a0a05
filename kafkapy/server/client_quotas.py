"""The client quotas of the metadata, for the handlers that enforce them."""

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkapy.handlers.context import Services
    from kafkapy.metadata.image import MetadataImage, QuotaEntity
    from kafkapy.reactor.reactor import Reactor


logger = logging.getLogger(__name__)


def apply_quotas(
    services: "Services", reactor: "Reactor", image: "MetadataImage", changed: "Iterable[QuotaEntity]"
) -> None:
    """Give those who enforce them the quotas of entities that changed; while there are none, the handlers have none."""
    from kafkapy.metadata.client_quotas import CONNECTION_CREATION_RATE, IP, NO_QUOTAS
    from kafkapy.security.quotas import ClientQuotas  # most brokers have none

    quotas = services.client_quotas
    if quotas is None:
        config = services.config.quota
        quotas = ClientQuotas(config.quota_window_num, config.quota_window_size_seconds * 1000)
        changed = image.client_quotas
    for entity in changed:
        of_entity = image.client_quotas.get(entity, NO_QUOTAS)
        names = dict(entity)
        if IP in names:
            _set_ip_rate(reactor, names[IP], of_entity.get(CONNECTION_CREATION_RATE))
        else:
            quotas.set_entity(entity, of_entity)
    services.client_quotas = None if quotas.is_empty else quotas


def _set_ip_rate(reactor: "Reactor", ip: str | None, per_second: float | None) -> None:
    try:
        reactor.set_ip_rate(ip, per_second)
    except ValueError:  # Apache Kafka's controller allows host names
        logger.warning("Ignoring the quotas of ip %s: it is no address", ip)
