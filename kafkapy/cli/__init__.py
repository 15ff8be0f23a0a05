"""The `kafkapy` command: one module for each command, imported only when that command runs.

`kafkapy/__main__.py` finds the command. start, storage, dump-log and protocol parse their arguments themselves and
do not import typer; main.py has the others, which are clients of a running broker.

start.py log_options.py console_options.py console_child.py    `start`, its log, and the console beside it
addresses.py connecting_options.py registry_options.py recording_options.py    of console, registry, record, replay
storage.py dump_log.py protocol.py         log directories, their files, and frames, without a broker
main.py overview.py stand_ins.py options.py parser.py    dispatch of client commands; shared options; without typer
failure.py interrupt.py deadline.py output.py table.py    errors, exit statuses; Ctrl-C; time limits; JSON and tables
client.py reachable.py command_config.py   confluent-kafka's clients; is a broker reachable; TLS and login settings
profile.py profiles.py defaults.py    clusters by name; the cluster that a command uses
connection.py connected.py client_security.py    requests that librdkafka lacks, over a connection of our own
topics.py topic_facts.py librdkafka_topics.py topic_changes.py topic_copy.py chosen.py    topics, by name or pattern
configs.py explained_keys.py config_hints.py    configs, what their keys do, hints for a refused one
produce.py line_records.py sender.py       records sent: options, lines as records, deliveries
consume.py consume_options.py consume_span.py received.py    records read, filtered, formatted
groups.py group_list.py group_offsets.py committed_offsets.py group_explain.py    groups, their offsets and rebalances
group_names.py reset_targets.py consumer_groups.py share_groups.py share_explain.py streams_groups.py    each kind
dead_letters.py redrive.py redrive_state.py redrive_lock.py state_dir.py    dead letters, sent back
transactions.py transaction_admin.py moments.py progress.py follow.py    ids; times in options; progress; growing files
security.py security_admin.py passwords.py security_quotas.py security_tokens.py    a secured node; users, ACLs, quotas
cluster.py cluster_check.py cluster_survey.py    nodes on this machine; what prevents taking over a Kafka cluster
cluster_where.py cluster_link.py cluster_status.py cluster_voters.py cluster_changes.py    any cluster, its changes
command_tree.py completion.py manual.py man_options.py usage.py    completion and manual pages, made from the parsers
"""
