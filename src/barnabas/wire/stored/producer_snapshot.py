"""The `.snapshot` file beside a segment: what a partition knew of its producers at an offset.

The file is the version as int16, then the message; its CRC-32C is over everything after the `crc` field.
"""

from barnabas.wire.message import Message
from barnabas.wire.schema import Struct
from barnabas.wire.types import Int16, Int32, Int64, UInt32


class ProducerEntry(Struct):
    producer_id: Int64
    epoch: Int16
    last_sequence: Int32
    last_offset: Int64
    offset_delta: Int32
    timestamp: Int64
    coordinator_epoch: Int32
    current_txn_first_offset: Int64


class ProducerSnapshot(Message, versions="1"):
    crc: UInt32
    producer_entries: list[ProducerEntry]
