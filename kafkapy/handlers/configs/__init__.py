"""APIs of dynamic configs, and of client metrics, which are configured by them.

describe_configs.py list_config_resources.py    keys with values and sources; the resources that have configs
incremental_alter_configs.py alter_configs.py    change single keys, or all of a resource
shared_rows.py    writes a response of many resources, whose equal configs are in memory once
config_changes.py broker_loggers.py    shared by both; log levels as a resource
get_telemetry_subscriptions.py push_telemetry.py    which metrics a client pushes; the push (KIP-714)

Called by `serving/router.py`. Changes are decided by `metadata/configs.py` on the active controller.
"""
