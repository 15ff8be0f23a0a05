"""APIs of topics: list, describe, create, extend and delete them.

metadata.py         brokers, topics and leaders: requested by every client, often
topic_pieces.py     a large Metadata response, encoded in pieces
describe_topic_partitions.py    the same in pages, with eligible leader replicas
create_topics.py create_partitions.py delete_topics.py    changes, forwarded to the active controller
auto_create.py      topics that a client's request creates, and internal ones

Called by `serving/router.py`. Changes are decided by `metadata/topics.py` on the active controller.
"""
