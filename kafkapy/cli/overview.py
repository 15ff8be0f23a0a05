"""The text of `kafkapy -h` for each command, without importing the command, which takes far longer."""

from typing import Final

GROUPS: Final = {
    "topics": "Create, list, describe, alter, trim, copy and delete topics.",
    "configs": "Describe and alter configs at run time.",
    "groups": "List, describe, explain and delete groups, reset what they have read, and send dead letters back.",
    "transactions": "List and describe transactions, find those that hang, abort and terminate them.",
    "cluster": "Run a cluster of several nodes on this machine; look at any cluster, and change it.",
    "security": "Set up TLS, logins and rights.",
    "profile": "Clusters by name: the one in use replaces --bootstrap-server and --command-config.",
}
"""Commands with commands below them: each is the `app` of the module of its name, which is imported when it runs."""
ALONE: Final = {
    "produce": "Produce a record for each line.",
    "consume": (
        "Print the records of topics as lines, until --max-messages, --until-end, --until, --timeout-ms or Ctrl-C."
    ),
}
"""Commands that are the function of their name, in the module of their name: the first line of its docstring."""
OWN_PARSERS: Final = {
    "start": "Run a broker in the foreground (kafkapy start --help).",
    "console": "Serve pages about a cluster to a browser (kafkapy console --help).",
    "record": "Note what clients send to a cluster and get (kafkapy record --help).",
    "replay": "Send a recording to another cluster, and show what differs (kafkapy replay --help).",
    "registry": "Serve a schema registry with Confluent's HTTP API (kafkapy registry --help).",
    "storage": "Format and inspect log directories: format, info, random-uuid.",
    "protocol": "Decode and encode frames as JSON lines: decode, encode.",
    "dump-log": "Print segments, snapshots and indexes of a stopped directory.",
    "completion": "Print the script that completes command lines in bash, zsh or fish.",
    "man": "Print the manual page of a command, for man (kafkapy man --help).",
}
"""Commands that __main__ dispatches before typer."""
