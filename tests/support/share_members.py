"""A member of a share group that speaks through a WireClient: it joins, fetches and acknowledges, one request each."""

from collections.abc import Sequence
from typing import Any

from kafkapy.protocol.messages import share_acknowledge_request as acknowledging
from kafkapy.protocol.messages import share_fetch_request as fetching
from kafkapy.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from tests.support.client_requests import until
from tests.support.wire import WireClient

LEAVES = -1
OPENS, ENDS = 0, -1
"""Epochs of a share session."""

Acknowledged = tuple[int, int, Sequence[int]]
"""First offset, last offset, types."""


class ShareMember:
    """A member of a group that reads one topic; `topic_id` is that topic's."""

    def __init__(self, client: WireClient, group_id: str, topic_id: bytes, member_id: str = "m") -> None:
        self.client = client
        self.group_id = group_id
        self.topic_id = topic_id
        self.member_id = member_id
        self.epoch = 0
        self.session_epoch = OPENS

    def heartbeat(self, **fields: Any) -> Any:
        values = {"group_id": self.group_id, "member_id": self.member_id, "member_epoch": self.epoch, **fields}
        response = self.client.call(ShareGroupHeartbeatRequest(**values), 1)
        if response.error_code == 0 and response.member_epoch > 0:
            self.epoch = response.member_epoch
        return response

    def join(self, *topics: str) -> None:
        """Join, and stay until something is assigned."""
        joined: list[Any] = []

        def is_in() -> bool:
            joined.append(self.heartbeat(member_epoch=0, subscribed_topic_names=list(topics)))
            return joined[-1].error_code == 0

        until(is_in)
        until(lambda: has_partitions(joined[-1]) or has_partitions(self.heartbeat()))

    def fetch(self, *batches: Acknowledged, partition: int = 0, version: int = 2, **fields: Any) -> Any:
        """Fetch in the session, from one more partition, with acknowledgements of it."""
        named = fetching.FetchPartition(
            partition_index=partition,
            acknowledgement_batches=[
                fetching.AcknowledgementBatch(first_offset=a, last_offset=b, acknowledge_types=list(t))
                for a, b, t in batches
            ],
        )
        values = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "share_session_epoch": self.session_epoch,
            "max_wait_ms": 100,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 100,
            "batch_size": 100,
            "topics": [fetching.FetchTopic(self.topic_id, partitions=[named])],
            **fields,
        }
        response = self.client.call(fetching.ShareFetchRequest(**values), version)
        if response.error_code == 0:
            self.session_epoch += 1
        return response

    def acquire(self, count: int, partition: int = 0) -> list[tuple[int, int, int]]:
        """Fetch until some records are acquired: (first offset, last offset, delivery count) of each range."""
        while True:
            response = self.fetch(partition=partition, max_records=count, batch_size=count, share_acquire_mode=1)
            for topic in response.responses:
                for each in topic.partitions:
                    if each.acquired_records:
                        return [(a.first_offset, a.last_offset, a.delivery_count) for a in each.acquired_records]

    def send_acknowledgements(
        self, *batches: Acknowledged, partition: int = 0, version: int = 2, topic_id: bytes | None = None, **fields: Any
    ) -> Any:
        named = acknowledging.AcknowledgePartition(
            partition_index=partition,
            acknowledgement_batches=[
                acknowledging.AcknowledgementBatch(first_offset=a, last_offset=b, acknowledge_types=list(t))
                for a, b, t in batches
            ],
        )
        values = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "share_session_epoch": self.session_epoch,
            "topics": [acknowledging.AcknowledgeTopic(topic_id or self.topic_id, partitions=[named])],
            **fields,
        }
        response = self.client.call(acknowledging.ShareAcknowledgeRequest(**values), version)
        if response.error_code == 0:
            self.session_epoch += 1
        return response

    def acknowledge(self, *batches: Acknowledged, **options: Any) -> int:
        """Return the error code of the partition, or that of the whole request."""
        response = self.send_acknowledgements(*batches, **options)
        if response.error_code:
            return int(response.error_code)
        ((partition,),) = [topic.partitions for topic in response.responses]
        return int(partition.error_code)


def has_partitions(response: Any) -> bool:
    assert response.error_code == 0, response
    return response.assignment is not None and len(response.assignment.topic_partitions) > 0
