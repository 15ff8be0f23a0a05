"""Replace a log by its copy in another log directory (KIP-113)."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkapy.storage.log.log import Log


def take_over(copy: "Log", original: "Log") -> None:
    """Give `copy` the offsets, epochs and verifications of `original`, whose records it has all."""
    assert copy.log_end_offset == original.log_end_offset, f"{copy} does not end where {original} does"
    copy.update_high_watermark(original.high_watermark)
    copy.maybe_increment_log_start_offset(min(original.log_start_offset, copy.high_watermark))
    latest = original.leader_epochs.entries[-1] if original.latest_epoch is not None else None
    if latest is not None and latest.leader_epoch > (copy.latest_epoch if copy.latest_epoch is not None else -1):
        copy.leader_epochs.assign(*latest)  # an epoch without records yet
    copy.on_cleaned(original.clean_to)
    copy.producer_state.take_over_verifications(original.producer_state)
