"""Records and record batches as bytes: parsing, building, compression, validation. Import the modules directly. Pure.

batch.py batches.py    views of batches (magic 2), the record iterator, the CRC; the batches in a run of bytes
varint.py crc.py compression.py errors.py    parts of a batch: integers, checksum, the codecs with their bounds, errors
builder.py control.py    builds batches from records; control records: transaction markers, those of the Raft log
validate.py append_rules.py    a leader's validation before an append; its rules and results
leader_batch.py walk.py    the validation of one batch; the loop over its records
small_batch.py alike.py    faster ways for plain batches and for records of one layout
legacy.py convert.py    message sets of magic 0 and 1 as the same kind of view; conversion to and from magic 2
columns.py             a batch's records as columns, for the log cleaner

Called by `storage/log/` and the handlers, large batches on workers of `runtime/pool.py`.
"""
