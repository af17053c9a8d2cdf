"""Key and value of `__transaction_state`: what each transactional id is doing.

Status: 0 empty, 1 ongoing, 2 prepare commit, 3 prepare abort, 4 complete commit, 5 complete abort, 6 dead.
"""

from barnabas.wire.schema import Struct, field
from barnabas.wire.stored.forms import KeyMessage, ValueMessage
from barnabas.wire.types import Int8, Int16, Int32, Int64


class TransactionKey(KeyMessage):
    """Base of the keys of the transaction coordinator."""


class TransactionValue(ValueMessage):
    """Base of the values of the transaction coordinator."""


class TransactionLogKey(TransactionKey, type_id=0, versions="0"):
    transactional_id: str


class PartitionsSchema(Struct):
    topic: str
    partition_ids: list[Int32]


class TransactionLogValue(TransactionValue, type_id=0, versions="0-1", flexible="1+"):
    producer_id: Int64
    previous_producer_id: Int64 = field("1+", tag=0, default=-1)
    next_producer_id: Int64 = field("1+", tag=1, default=-1)
    producer_epoch: Int16
    next_producer_epoch: Int16 = field("1+", tag=3, default=-1)
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: list[PartitionsSchema] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = field("1+", tag=2, default=0)
