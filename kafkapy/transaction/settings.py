"""The configuration of transactions: the broker's current keys, and the finalised transaction.version."""

from collections.abc import Callable
from typing import Final

from kafkapy.config.transaction import TransactionConfig

TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
"""The topic that holds the coordinator's records (records.py)."""


class TransactionSettings:
    """Read at every use: the keys and the feature level may change at run time."""

    def __init__(self, config: Callable[[], TransactionConfig], transaction_version: Callable[[], int]) -> None:
        self._config = config
        self.transaction_version = transaction_version
        """Returns the finalised level of the feature transaction.version: 0, 1 or 2."""

    @classmethod
    def fixed(cls, config: TransactionConfig | None = None, transaction_version: int = 2) -> "TransactionSettings":
        """Return settings that never change: `config`, or Kafka's defaults if it is None."""
        fixed_config = config or TransactionConfig()
        return cls(lambda: fixed_config, lambda: transaction_version)

    @property
    def config(self) -> TransactionConfig:
        return self._config()
