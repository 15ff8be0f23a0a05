"""Fetches from leaders what this broker follows, and keeps its logs equal to theirs.

replica_fetchers.py    all fetchers of a broker; which one has a partition
replica_fetcher.py     one fetcher: a loop of Fetch requests to one leader, appends, truncation
session.py             the follower's side of a fetch session: what the next Fetch must say; pure

Built by `server/replication.py`; driven by `runtime/broker/metadata_publisher.py` and its own loops.
"""
