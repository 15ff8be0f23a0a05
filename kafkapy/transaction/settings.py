"""The configuration that counts for transactions: the broker's keys as they are now, and the finalised feature."""

from collections.abc import Callable

from kafkapy.config.transaction import TransactionConfig


class TransactionSettings:
    """Read anew at every use: keys and the feature's level may change at run time."""

    def __init__(self, config: Callable[[], TransactionConfig], transaction_version: Callable[[], int]) -> None:
        self._config = config
        self._transaction_version = transaction_version

    @classmethod
    def fixed(cls, config: TransactionConfig | None = None, transaction_version: int = 2) -> "TransactionSettings":
        """Return settings that never change, Kafka's defaults if none are given."""
        fixed_config = config or TransactionConfig()
        return cls(lambda: fixed_config, lambda: transaction_version)

    @property
    def config(self) -> TransactionConfig:
        return self._config()

    @property
    def transaction_version(self) -> int:
        """The finalised level of the feature transaction.version: 0, 1 or 2."""
        return self._transaction_version()
