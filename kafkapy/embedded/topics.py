"""Topics of an embedded broker, created and deleted without a client: for kafkapy.Broker."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kafkapy.errors import ApiError
from kafkapy.metadata.topic_names import prohibited_name_error
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

if TYPE_CHECKING:
    from kafkapy.server.broker import BrokerServer

MS_PER_S: Final = 1000


async def create_topics(
    server: "BrokerServer", names: Sequence[str], *, partitions: int, configs: Mapping[str, str], timeout_s: float
) -> None:
    """Create topics with distinct names; all that can be, then raise the first ApiError."""
    for name in names:
        error = prohibited_name_error(name)
        if error is not None:
            raise error
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=-1,
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
            )
            for name in names
        ],
        timeout_ms=int(timeout_s * MS_PER_S),
    )
    response = await server.change(lambda controller, _: controller.topics.decide_create(request))
    for result in response.topics:
        if result.error_code:
            raise ApiError(ErrorCode(result.error_code), f"{result.name}: {result.error_message}")


async def delete_topics(server: "BrokerServer", names: Sequence[str]) -> None:
    """Delete the topics of these names that exist. Raises ApiError."""
    by_name = server.node.controller.image.topics.by_name
    topic_ids = [by_name[name].topic_id for name in names if name in by_name]
    for error in (await server.change(lambda controller, _: controller.topics.decide_delete(topic_ids))).values():
        if error is not None:
            raise error
