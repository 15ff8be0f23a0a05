"""Kafka's configuration keys: from text to typed, checked, frozen models, and their changes while a node runs. Pure.

facts.py           every key of Apache Kafka 4.4.0 with type, default and valid values: begin here
definitions.py validators.py documentation.py    a key's definition; its valid values; its documentation
properties.py load.py    a .properties file as text, then as a BrokerConfig
section.py         base class of the models below: the dotted key is the alias of a field
broker.py          BrokerConfig: all keys of a node, by subsystem:
  node.py network.py security.py tls.py quorum.py replication.py log_defaults.py group.py transaction.py quota.py
  metrics.py share.py remote.py    (the last one is parsed and checked, but not supported)
log.py topic.py    a topic's log configuration: overrides, inherited broker keys, defaults
endpoints.py checks.py    listeners, and rules between keys
patterns.py        regular expressions of users, in linear time
dynamic.py describe.py rules.py    changes at run time; DescribeConfigs; the controller's checks of changes
releases.py        the names of metadata.version's levels
embedded.py        the defaults of `kafkapy start` without a file and of `kafkapy.Broker`

`cli/start.py` loads it at the start; `runtime/broker/metadata_publisher.py` applies dynamic changes.
"""
