"""Log compaction: of the records of a key, the last one stays.

plan.py             which log is the dirtiest, up to which offset, and which segments merge
manager.py          the broker's side: chooses a log, plans a pass, swaps in its result
cleaning_pass.py    one pass: index the dirty section, then rewrite
offset_map.py retained_offsets.py    the last offset of each key; which offsets stay
batch_filter.py transactions.py    what stays of a batch; what may go of a transaction
steps.py            the pass's functions in the helper process
metrics.py          Kafka's gauges

Driven by `runtime/logs/cleaner.py`.
"""
