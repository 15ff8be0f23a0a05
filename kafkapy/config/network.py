"""Keys of the node's listeners and advertised listeners, and the limits of its sockets and queues."""

from kafkapy.config.section import Section
from kafkapy.dataclass import dataclass
from kafkapy.types import INT32_MAX


@dataclass(frozen=True, kw_only=True, slots=True)
class NetworkConfig(Section):
    """Kafka's keys with underscores for dots, and Kafka's defaults."""

    controller_listener_names: tuple[str, ...]
    advertised_listeners: tuple[str, ...] | None = None
    connection_failed_authentication_delay_ms: int = 100
    connections_max_idle_ms: int = 600000
    early_start_listeners: tuple[str, ...] | None = None
    inter_broker_listener_name: str | None = None
    kafkapy_authentication_timeout_ms: int = 10000
    listener_security_protocol_map: str = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
    listeners: tuple[str, ...] = ("PLAINTEXT://:9092",)
    max_connection_creation_rate: int = INT32_MAX
    max_connections: int = INT32_MAX
    max_connections_per_ip: int = INT32_MAX
    max_connections_per_ip_overrides: str = ""
    num_network_threads: int = 3
    queued_max_request_bytes: int = -1
    queued_max_requests: int = 500
    security_inter_broker_protocol: str = "PLAINTEXT"
    socket_connection_setup_timeout_max_ms: int = 30000
    socket_connection_setup_timeout_ms: int = 10000
    socket_listen_backlog_size: int = 50
    socket_receive_buffer_bytes: int = 102400
    socket_request_max_bytes: int = 104857600
    socket_send_buffer_bytes: int = 102400
