"""Tools for log directories that no broker uses: `kafkapy storage` and `kafkapy dump-log`.

format.py scram_arguments.py    prepares directories, with the first metadata records and users
dump.py dump_records.py         prints files with the lines of kafka-dump-log.sh

Called by `cli/storage.py` and `cli/dump_log.py`.
"""
