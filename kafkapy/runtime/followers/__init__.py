"""Replicates the partitions that this broker follows: fetches from their leaders, appends, truncates.

replica_fetchers.py    all fetchers of a broker; which one has a partition
replica_fetcher.py     one fetcher: a loop of Fetch requests to one leader, appends, truncation
session.py             the follower's side of a fetch session: the content of the next Fetch; pure

Built by `server/replication.py`; driven by `runtime/broker/metadata_publisher.py` and its own loops.
"""
