"""Records and record batches as bytes: parsing, building, compression, validation. Import the modules directly.

batch.py        views of batches (magic 2), the record iterator, the header scan, the CRC
legacy.py       message sets of magic 0 and 1 as the same kind of view
builder.py      builds batches and message sets from records
control.py      control records: transaction markers and those of the Raft log
compression.py  the compression codecs in Kafka's framings, with bounds on decompression
validate.py     a leader's validation of a batch before it is appended; walk.py is its loop over the records
"""
