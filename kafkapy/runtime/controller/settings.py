"""The configuration of a controller, from which each term's tables are made."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kafkapy.metadata.configs import MIN_INSYNC_REPLICAS, ConfigRules
from kafkapy.metadata.controller import Controller, ControllerDefaults
from kafkapy.seams import Random

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.metadata.delegation_tokens import TokenRules


class ControllerSettings:
    """The node's configuration, the rules of the keys that change at run time, and a new cluster's first records."""

    __slots__ = ("bootstrap_records", "config", "rules", "token_rules")

    def __init__(self, config: "BrokerConfig", rules: ConfigRules, bootstrap_records: Sequence[Any]) -> None:
        self.config = config
        self.rules = rules
        self.bootstrap_records = bootstrap_records
        self.token_rules = _token_rules(config)

    @property
    def min_insync_replicas(self) -> int:
        """min.insync.replicas of a topic without a value of its own, in a cluster without one."""
        value = self.rules.effective_topic_config(MIN_INSYNC_REPLICAS, cluster={}, node={}, topic={})
        return int(value or 1)

    def new_controller(self, cluster_id: str, random: Random) -> Controller:
        """Return empty tables, for a term that begins."""
        config = self.config
        return Controller(
            node_id=config.node_id,
            cluster_id=cluster_id,
            rules=self.rules,
            random=random,
            defaults=ControllerDefaults(
                session_timeout_ms=config.quorum.broker_session_timeout_ms,
                partition_count=config.node.num_partitions,
                replication_factor=config.replication.default_replication_factor,
                token_rules=self.token_rules,
            ),
            quorum_node_ids=config.quorum_voters,
        )


def _token_rules(config: "BrokerConfig") -> "TokenRules | None":
    """Return the rules of delegation.token.*, or None if no secret key is configured."""
    security = config.security
    key = security.delegation_token_secret_key
    if key is None or not key.value:
        return None
    from kafkapy.metadata.delegation_tokens import TokenRules

    return TokenRules(
        key.value.encode(), security.delegation_token_max_lifetime_ms, security.delegation_token_expiry_time_ms
    )
