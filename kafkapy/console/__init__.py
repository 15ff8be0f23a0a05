"""`kafkapy console`: pages about a cluster in a browser, as a process of its own and a client like any other.

    settings.py      what the command line says
    security.py      who may ask: Host, Origin, token, session, CSRF tokens; the headers of every answer
    brokers.py       requests that librdkafka lacks, over connections of our own
    topic_list.py    the names of all topics, kept as long as they are the same
    cluster.py topics.py groups.py transactions.py access.py    what the pages show
    search.py        records of a topic, found and tailed without a group
    streams.py       searches and tails as server-sent events
    changes.py       what --allow-changes allows, confirmed and logged
    samples.py       an hour of /metrics, in memory
    lags.py          an hour of the groups' lag, asked for in the background
    pages.py render.py app.py main.py    routes, templates, the process

Every list is bounded, every wait has a time limit, and nothing that comes from the cluster is shown unescaped.
"""
