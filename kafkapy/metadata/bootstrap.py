"""The first records of a new active controller: bootstrap records for an empty log, the abort of an open transaction.

The bootstrap records come from bootstrap.checkpoint, which formatting wrote. They are written as one metadata
transaction if metadata.version supports it, so that a leader that fails in between has no effect. Source: KIP-868.
"""

from collections.abc import Mapping, Sequence
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
    """Return the records that format a new directory: metadata.version first, every feature at its highest level.

    kraft.version is not among them: it is a control record of the Raft log.
    """
    return feature_records(MAX_FEATURE_LEVELS)


def feature_records(levels: Mapping[str, int]) -> list[FeatureLevelRecord]:
    """Return a record for each level above 0 except kraft.version; metadata.version, which comes first, in any case."""
    others = sorted(name for name in levels if name not in (METADATA_VERSION, KRAFT_VERSION) and levels[name] > 0)
    return [FeatureLevelRecord(name=name, feature_level=levels[name]) for name in (METADATA_VERSION, *others)]


def decide_activation(
    bootstrap_records: Sequence[Any], *, is_log_empty: bool, is_in_transaction: bool, min_insync_replicas: int = 1
) -> Decision[Any, None]:
    """Decide the first records of a new leader; `is_log_empty`: the image has no metadata.version."""
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
    """Return the cluster default of min.insync.replicas: with ELR all brokers must use the same (KIP-966)."""
    return ConfigRecord(
        resource_type=CLUSTER_DEFAULT.resource_type,
        resource_name=CLUSTER_DEFAULT.name,
        name=MIN_INSYNC_REPLICAS,
        value=str(value),
    )
