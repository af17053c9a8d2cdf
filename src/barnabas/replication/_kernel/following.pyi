from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from barnabas.base.ids import Uuid

W = TypeVar("W", bound=FetchPosition)

class FetchPosition:
    """What a client asks of one partition, and what it was told last: the fields of a `WantedPartition`."""

    key: tuple[str | Uuid, int]
    fetch_offset: int
    follower_log_start_offset: int
    high_watermark: int
    log_start_offset: int
    last_fetched_epoch: int
    leader_epoch: int
    max_bytes: int

class FollowerPosition:
    """How far a follower is: the fields of a `RemoteReplica` that its fetches change."""

    log_end_offset: int
    log_start_offset: int
    last_fetch_leader_log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int
    broker_epoch: int | None

    def fetched(
        self, log_end_offset: int, log_start_offset: int, leader_log_end_offset: int, broker_epoch: int, now_ms: int
    ) -> None:
        """It has fetched at `log_end_offset`."""

class TopicMeter:
    """What was written to, and read from, the partitions of a topic that are on this node, since it started. Requests
    count once for each partition in them."""

    bytes_in: int
    messages_in: int
    produce_requests: int
    failed_produce_requests: int
    bytes_rejected: int
    bytes_out: int
    fetch_requests: int
    failed_fetch_requests: int
    replication_bytes_in: int
    replication_bytes_out: int

class RoleFields:
    """What leading and following have in common: the fields of a `PartitionRole`."""

    meter: TopicMeter
    partition: Any
    log: Any
    leader_epoch: int
    appended_bytes: int
    is_over: bool
    delayed: Any

class Glance:
    """The partitions of a fetch that goes on with a session in which nothing is new."""

    def over(
        self,
        positions: Iterable[W],
        is_first: bool,
        now_ms: int,
        offsets: dict[Any, int],
        seen_bytes: dict[Any, int] | None,
    ) -> list[W]:
        """Pass over those, and return the others, in their order, of which nothing was noted. `offsets` gets where to
        wait, `seen_bytes` what was appended there. With `is_first` it is noted that a follower has fetched."""

class FollowerGlance(Glance):
    """A follower has all there is, is in sync, is where it was the last time, and was told of the high watermark and
    the log start."""

    def __init__(self, index: Mapping[Any, Any], leader_type: type, replica: int, broker_epoch: int) -> None: ...

class ConsumerGlance(Glance):
    """A consumer has all that it may see, and was told of the high watermark and the log start."""

    def __init__(self, index: Mapping[Any, Any], leader_type: type, is_allowed: Callable[[Any], bool]) -> None: ...

def watch_to_the_end(delayed: Any, offsets: dict[Any, int], seen_bytes: dict[Any, int] | None) -> dict[Any, int]:
    """Let `delayed` hear of what is appended to these roles; how much was, by now or by `seen_bytes`."""

def unwatch(delayed: Any, offsets: dict[Any, int]) -> None: ...
def moved(seen_bytes: dict[Any, int]) -> list[Any]:
    """The roles that are over, or to which more was appended."""
