"""What consumers of a classic group say to each other through JoinGroup and SyncGroup.

Each is preceded by its version as int16. A newer version only adds fields at the end, so a reader takes what it knows
of a version above its own and ignores the rest.
"""

from barnabas.wire.message import Message
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int32


class TopicPartition(Struct):
    topic: str
    partitions: list[Int32]


class ConsumerProtocolSubscription(Message, versions="0-3"):
    topics: list[str]
    user_data: bytes | None = field(default=None)
    owned_partitions: list[TopicPartition] = field("1+", factory=list, ignorable=True)
    generation_id: Int32 = field("2+", default=-1, ignorable=True)
    rack_id: str | None = field("3+", default=None, ignorable=True)


class ConsumerProtocolAssignment(Message, versions="0-3"):
    assigned_partitions: list[TopicPartition]
    user_data: bytes | None = field(default=None)
