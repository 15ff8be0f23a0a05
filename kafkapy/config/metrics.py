"""Keys of metrics, their reporters and client telemetry."""

from kafkapy.config.section import Section
from kafkapy.dataclass import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricsConfig(Section):
    """Kafka's keys with underscores for dots, and Kafka's defaults."""

    kafka_metrics_polling_interval_secs: int = 10
    kafka_metrics_reporters: tuple[str, ...] = ()
    metric_reporters: tuple[str, ...] = ("org.apache.kafka.common.metrics.JmxReporter",)
    metrics_num_samples: int = 2
    metrics_recording_level: str = "INFO"
    metrics_sample_window_ms: int = 30000
    telemetry_max_bytes: int = 1048576
