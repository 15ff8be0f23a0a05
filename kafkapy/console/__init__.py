"""`kafkapy console`: pages about a cluster in a browser, as a process of its own and a client like any other.

settings.py state.py    the options of the command line; what all pages share
connections.py          bounds connections that have not sent a request yet
security.py session_key.py addresses.py    which requests are allowed: Host, Origin, token, session, CSRF tokens
oidc.py                 logins by OpenID Connect, with roles
client.py brokers.py    confluent-kafka's clients; requests that librdkafka lacks, over connections of our own
tables.py fields.py     the order and pages of lists in URLs; fields within their bounds
topic_list.py           the names of all topics, cached until they change
cluster.py topics.py transactions.py access.py client_metrics.py    the data of the pages
groups.py group_list.py other_groups.py    groups of all types
streams_groups.py                          a streams group: its topology drawn, tasks by process, lag of copies
share_groups.py dead_letters.py            records in flight of share groups; dead letters, and their redrive
queries.py search.py row.py    records of a topic, found and tailed without a group
masks.py                fields of values that no page shows (--mask)
marks.py                which records belong to aborted or open transactions
streams.py              searches and tails as server-sent events
change.py changes.py admin_changes.py loading.py    the changes that --allow-changes allows, confirmed and logged
rules.py subjects.py    ACLs in words; the schema registry's subjects
samples.py lags.py history.py background.py    an hour of /metrics, the groups' lag and the cluster, in memory
overview.py attention.py    the first page, and what needs attention
pages.py render.py app.py main.py    routes, templates, the application, the process

Every list is bounded, every wait has a time limit, and all text from the cluster is escaped. A page does its work in
the request of its browser; only background.py runs without one.
"""
