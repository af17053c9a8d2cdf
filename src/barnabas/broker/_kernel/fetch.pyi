from collections.abc import Callable

from barnabas.base.ids import Uuid
from barnabas.replication.fetch_sessions import PartitionKey
from barnabas.replication.partition import Partition

def answer_ordinary_fetch(
    frame: bytearray,
    version: int,
    index: dict[PartitionKey, Partition],
    may_read: Callable[[str | Uuid], bool],
    max_bytes: int,
) -> bytes | None:
    """The whole answer to a Fetch of at most so many bytes, with its size in front; None if it is not ordinary."""
