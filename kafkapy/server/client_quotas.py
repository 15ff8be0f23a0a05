"""Applies the metadata's client quotas to the handlers and listeners that enforce them."""

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kafkapy.handlers.context import ControllerServices, Services
    from kafkapy.metadata.image import MetadataImage, QuotaEntity
    from kafkapy.reactor.reactor import Reactor


PER_STEP: Final = 50
"""Entities per step: 0.1 ms."""

logger = logging.getLogger(__name__)


def apply_quotas(
    served: "Iterable[Services | ControllerServices]", image: "MetadataImage", changed: "Iterable[QuotaEntity]"
) -> Iterator[None]:
    """Apply the changed entities' quotas to the handlers, in steps; if no quota is left, handlers get None.

    `served`: a node's services as broker and as controller; a client's usage of both counts together.
    """
    from kafkapy.metadata.client_quotas import IP, NO_QUOTAS
    from kafkapy.security.quotas import ClientQuotas  # most nodes have none

    first, *_ = all_services = list(served)
    quotas = first.client_quotas
    if quotas is None:
        config = first.config.quota
        quotas = ClientQuotas(
            config.quota_window_num,
            config.quota_window_size_seconds * 1000,
            mutation_window_count=config.controller_quota_window_num,
            mutation_window_ms=config.controller_quota_window_size_seconds * 1000,
        )
        changed = image.client_quotas
    for count, entity in enumerate(changed):
        if count % PER_STEP == PER_STEP - 1:
            yield
        if IP not in dict(entity):
            quotas.set_entity(entity, image.client_quotas.get(entity, NO_QUOTAS))
    for services in all_services:
        services.client_quotas = None if quotas.is_empty else quotas


def apply_ip_rates(reactor: "Reactor", image: "MetadataImage", changed: "Iterable[QuotaEntity]") -> Iterator[None]:
    """Apply changed rates of IP addresses to a broker's listeners, in steps."""
    from kafkapy.metadata.client_quotas import CONNECTION_CREATION_RATE, IP, NO_QUOTAS

    for count, entity in enumerate(changed):
        if count % PER_STEP == PER_STEP - 1:
            yield
        names = dict(entity)
        if IP not in names:
            continue
        try:
            rate = image.client_quotas.get(entity, NO_QUOTAS).get(CONNECTION_CREATION_RATE)
            reactor.set_ip_rate(names[IP], rate)
        except ValueError:  # Apache Kafka's controller allows host names
            logger.warning("Ignoring the quotas of ip %s: not an IP address", names[IP])
