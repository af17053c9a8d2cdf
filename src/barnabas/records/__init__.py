"""Record batches: the form in which records lie in logs and travel over the wire.

Build a batch, let a broker place it in the log, and read it back:

>>> from barnabas.records import BatchBuilder, BatchView, Codec, iter_records
>>> builder = BatchBuilder(16_384, codec=Codec.LZ4)
>>> builder.append(b"Barnabas", b"messenger", timestamp_ms=1_700_000_000_000, headers=[("castle", None)])
0
>>> batch = builder.build()
>>> BatchView(batch).stamp(base_offset=42, leader_epoch=7)
>>> for record in iter_records(batch):
...     print(record.offset, record.key, record.value, record.headers)
42 b'messenger' b'Barnabas' (('castle', None),)

`batch` walks and stamps batches, `builder` makes them, `reading` takes any format that a log may hold, `control` knows
what brokers write for themselves, `legacy` the formats before 0.11, `compression` the codecs. `arrow` (not imported
here, as it needs pyarrow) turns batches into columns and back.
"""

from barnabas.records._kernel.build import max_record_size_bytes
from barnabas.records._kernel.decode import Record
from barnabas.records._kernel.murmur2 import murmur2
from barnabas.records._kernel.walk import RecordSummary
from barnabas.records.batch import BatchView, TimestampType, add_to_sequence, iter_batches
from barnabas.records.builder import BatchBuilder, emptied, recoded
from barnabas.records.compression import Codec, compress, decompress
from barnabas.records.control import (
    ControlType,
    TransactionMarker,
    build_marker,
    control_key,
    control_type,
    read_marker,
)
from barnabas.records.reading import iter_entries, iter_records

__all__ = [
    "BatchBuilder",
    "BatchView",
    "Codec",
    "ControlType",
    "Record",
    "RecordSummary",
    "TimestampType",
    "TransactionMarker",
    "add_to_sequence",
    "build_marker",
    "compress",
    "control_key",
    "control_type",
    "decompress",
    "emptied",
    "iter_batches",
    "iter_entries",
    "iter_records",
    "max_record_size_bytes",
    "murmur2",
    "read_marker",
    "recoded",
]
