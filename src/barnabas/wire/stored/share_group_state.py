"""Keys and values of `__share_group_state`: which records of a share partition are acknowledged.

A snapshot holds the whole state, an update what changed since. Delivery state: 0 available, 2 acknowledged, 4 archived.
"""

from barnabas.base.ids import Uuid
from barnabas.wire.schema import Struct, field
from barnabas.wire.stored.forms import KeyMessage, ValueMessage
from barnabas.wire.types import Int8, Int16, Int32, Int64


class ShareKey(KeyMessage):
    """Base of the keys of the share coordinator."""


class ShareValue(ValueMessage):
    """Base of the values of the share coordinator."""


class ShareSnapshotKey(ShareKey, type_id=0, versions="0"):
    group_id: str
    topic_id: Uuid
    partition: Int32


class StateBatch(Struct):
    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


class ShareSnapshotValue(ShareValue, type_id=0, versions="0", flexible="0+"):
    snapshot_epoch: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = field(tag=0, default=-1)
    create_timestamp: Int64
    write_timestamp: Int64
    state_batches: list[StateBatch]


class ShareUpdateKey(ShareKey, type_id=1, versions="0"):
    group_id: str
    topic_id: Uuid
    partition: Int32


class ShareUpdateValue(ShareValue, type_id=1, versions="0", flexible="0+"):
    snapshot_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = field(tag=0, default=-1)
    state_batches: list[StateBatch]
