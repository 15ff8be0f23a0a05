"""The `kafkapy` command: one module for each command, imported only when that command runs.

`kafkapy/__main__.py` finds the command. start, storage, dump-log and protocol parse their arguments themselves and
import neither typer nor rich; main.py has the others, which are clients of a running broker.

start.py log_options.py console_options.py console_child.py    `start`, its log, and the console beside it
addresses.py connecting_options.py         HOST:PORT; the options that the console and the registry share
registry_options.py recording_options.py    `registry`, `record` and `replay`: kafkapy.registry, kafkapy.recording
storage.py dump_log.py protocol.py         log directories, their files, and frames, without a broker
main.py overview.py options.py parser.py output.py failure.py interrupt.py deadline.py    what the client commands share
client.py reachable.py command_config.py   confluent-kafka as the client, checked first; TLS and login settings
profile.py profiles.py defaults.py         clusters by name; which one a command means
connection.py connected.py client_security.py    requests that librdkafka lacks, over a connection of our own
topics.py topic_facts.py librdkafka_topics.py topic_changes.py topic_copy.py chosen.py    topics, by name or pattern
configs.py explained_keys.py config_hints.py    configs, what their keys do, what a refused one may have meant
produce.py line_records.py sender.py       records sent: options, lines as records, deliveries
consume.py consume_options.py consume_span.py received.py    records read, filtered, formatted
moments.py progress.py follow.py           times as they are typed; how far something is; files that grow
groups.py group_list.py group_offsets.py committed_offsets.py group_explain.py    groups, their offsets and rebalances
group_names.py share_groups.py share_explain.py dead_letters.py redrive.py streams_groups.py    of each kind
transactions.py transaction_admin.py       transactional ids, hanging transactions
security.py security_admin.py passwords.py security_quotas.py security_tokens.py    a secured node; users, ACLs, quotas
cluster.py cluster_check.py cluster_survey.py    several nodes on this machine; can a cluster be taken over
cluster_where.py cluster_link.py cluster_status.py cluster_voters.py cluster_changes.py    any cluster
command_tree.py completion.py manual.py man_options.py usage.py    completion and manual pages, made from the parsers
"""
