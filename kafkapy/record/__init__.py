"""Records and their batches, as bytes: read, built, compressed, checked. Import the modules; nothing is loaded here.

batch.py        views over batches (magic 2), the record iterator, the header scan, the CRC
legacy.py       message sets of magic 0 and 1 as the same kind of view
builder.py      batches and message sets from records
control.py      control records: transaction markers and those of the Raft log
compression.py  the five codecs in Kafka's framings, bounded when inflating
validate.py     what a leader does with a batch before it is appended; walk.py its loop over the records
"""
