"""What happens to the groups of a coordinator, counted as Apache Kafka's GroupCoordinatorMetrics does."""


class GroupCounts:
    """Counted as it is decided, whether or not its records are written then. Epochs for members that leave are not."""

    __slots__ = (
        "classic_rebalances",
        "consumer_rebalances",
        "offset_commits",
        "offset_deletions",
        "offset_expirations",
        "streams_rebalances",
    )

    def __init__(self) -> None:
        self.offset_commits = 0
        """Offsets that were committed, also in transactions."""
        self.offset_deletions = 0
        """Offsets that were deleted by OffsetDelete."""
        self.offset_expirations = 0
        self.classic_rebalances = 0
        """Generations of classic groups that got their assignment."""
        self.consumer_rebalances = 0
        """Epochs of consumer groups that began with a heartbeat, a JoinGroup or a regular expression."""
        self.streams_rebalances = 0
        """Epochs of streams groups that began with a heartbeat."""
