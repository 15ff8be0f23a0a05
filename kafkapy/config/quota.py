"""Keys of quotas: the windows in which rates are measured."""

from kafkapy.config.section import Section
from kafkapy.dataclass import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class QuotaConfig(Section):
    """Kafka's keys with underscores for dots, and Kafka's defaults."""

    alter_log_dirs_replication_quota_window_num: int = 11
    alter_log_dirs_replication_quota_window_size_seconds: int = 1
    client_quota_callback_class: str | None = None
    controller_quota_window_num: int = 11
    controller_quota_window_size_seconds: int = 1
    quota_window_num: int = 11
    quota_window_size_seconds: int = 1
    replication_quota_window_num: int = 11
    replication_quota_window_size_seconds: int = 1
