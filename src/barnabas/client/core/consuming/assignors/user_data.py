"""What members of a group with the sticky assignor tell each other beside their subscriptions."""

from barnabas.wire.message import Message
from barnabas.wire.schema import Struct, field
from barnabas.wire.types import Int32


class PreviousTopic(Struct):
    topic: str
    partitions: list[Int32]


class StickyUserData(Message, versions="0-1"):
    """What a member had, and since v1 in which generation. The version is not written: v1 is what is long enough."""

    previous_assignment: list[PreviousTopic]
    generation: Int32 = field("1+", default=-1)
