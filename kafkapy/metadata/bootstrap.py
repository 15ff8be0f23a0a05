"""What a controller writes when it takes over: the bootstrap records of an empty log, the end of a broken transaction.

The bootstrap records come from bootstrap.checkpoint, which formatting left. They go in as one metadata transaction
where metadata.version knows those, so that a leader that dies in between leaves nothing half done. Source: KIP-868.
"""

from collections.abc import Sequence
from typing import Any, Final

from kafkapy.machine import Decision
from kafkapy.metadata.configs import CLUSTER_DEFAULT, MIN_INSYNC_REPLICAS
from kafkapy.metadata.features import MAX_FEATURE_LEVELS, MV_3_6_IV1
from kafkapy.metadata.image import ELIGIBLE_LEADER_REPLICAS_VERSION, KRAFT_VERSION, METADATA_VERSION
from kafkapy.protocol.messages.abort_transaction_record import AbortTransactionRecord
from kafkapy.protocol.messages.begin_transaction_record import BeginTransactionRecord
from kafkapy.protocol.messages.config_record import ConfigRecord
from kafkapy.protocol.messages.end_transaction_record import EndTransactionRecord
from kafkapy.protocol.messages.feature_level_record import FeatureLevelRecord

TRANSACTION_NAME: Final = "Bootstrap records"
ABORT_REASON: Final = "Controller failover"


def default_bootstrap_records() -> list[FeatureLevelRecord]:
    """Return what a new directory is formatted with: metadata.version first, every feature at its highest level.

    kraft.version is not among them: it lies in the Raft log as a control record.
    """
    others = sorted(name for name in MAX_FEATURE_LEVELS if name not in (METADATA_VERSION, KRAFT_VERSION))
    return [
        FeatureLevelRecord(name=name, feature_level=MAX_FEATURE_LEVELS[name]) for name in (METADATA_VERSION, *others)
    ]


def decide_activation(
    bootstrap_records: Sequence[Any], *, is_log_empty: bool, is_in_transaction: bool, min_insync_replicas: int = 1
) -> Decision[Any, None]:
    """Decide what a new leader writes first; `is_log_empty`: the image has no metadata.version."""
    aborts = [AbortTransactionRecord(reason=ABORT_REASON)] if is_in_transaction else []
    if not is_log_empty:
        return Decision(None, list(aborts), is_atomic=True)
    levels = {
        record.name: record.feature_level for record in bootstrap_records if isinstance(record, FeatureLevelRecord)
    }
    assert METADATA_VERSION in levels, "the bootstrap records do not name a metadata.version"
    records = list(bootstrap_records)
    if levels.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0:
        records.append(_cluster_min_insync_replicas(min_insync_replicas))
    if levels[METADATA_VERSION] < MV_3_6_IV1:
        return Decision(None, [*aborts, *records], is_atomic=True)
    return Decision(None, [*aborts, BeginTransactionRecord(name=TRANSACTION_NAME), *records, EndTransactionRecord()])


def _cluster_min_insync_replicas(value: int) -> ConfigRecord:
    """Eligible leader replicas need a min.insync.replicas that all brokers agree on (KIP-966)."""
    return ConfigRecord(
        resource_type=CLUSTER_DEFAULT.resource_type,
        resource_name=CLUSTER_DEFAULT.name,
        name=MIN_INSYNC_REPLICAS,
        value=str(value),
    )
