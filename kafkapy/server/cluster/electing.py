"""Requests elections of partition leaders from the controller (KIP-460)."""

from collections.abc import Mapping, Sequence
from typing import Final

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from kafkapy.protocol.response_error import response_error
from kafkapy.server.cluster.queries import Ask

TIMEOUT_S: Final = 60.0
PREFERRED, UNCLEAN = 0, 1


def elect(
    ask: Ask, partitions: Mapping[str, Sequence[int]] | None, *, is_unclean: bool = False
) -> tuple[list[str], dict[str, str]]:
    """Elect the preferred leaders of partitions by topic (None: of all); or, unclean, a replica that is not in sync.

    Returns the partitions with a new leader as `topic-partition`, and why others have none; those whose leader is the
    right one are in neither. Raises ApiError, OSError, ProtocolError.
    """
    wanted = None
    if partitions is not None:
        wanted = [TopicPartitions(topic, partitions=list(ids)) for topic, ids in partitions.items()]
    request = ElectLeadersRequest(election_type=UNCLEAN if is_unclean else PREFERRED, topic_partitions=wanted)
    response = ask(request, timeout_s=TIMEOUT_S)
    if response.error_code:
        raise response_error(response.error_code)
    elected, refused = [], {}
    for topic in response.replica_election_results:
        for each in topic.partition_result:
            name = f"{topic.topic}-{each.partition_id}"
            if not each.error_code:
                elected.append(name)
            elif each.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                refused[name] = each.error_message or ErrorCode(each.error_code).name
    return elected, refused
