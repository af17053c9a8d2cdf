"""Which partition a record goes to.

Named in the record, it goes there. Else a partitioner of the program's is asked if there is one; else the key decides
by its hash, the same for all Kafka clients; else, without a key, records stick to one partition until about a batch is
full, then to another one. The last two are done in the kernel for each record; here is what is decided once per batch.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Protocol

from barnabas.base.errors import SettingsError
from barnabas.base.settings import Plugin
from barnabas.records import murmur2

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from barnabas.client.core.cluster_view import ClusterView


class Partitioner(Protocol):
    """A plug-in that picks partitions. It may have `configure(settings)`, called once before its use, and `close()`."""

    def partition(
        self, topic: str, key: Any, key_bytes: bytes | None, value: Any, value_bytes: bytes | None, view: ClusterView
    ) -> int:
        """The number of a partition of the topic, which the view knows. It may run on any thread that sends."""
        ...


class RoundRobinPartitioner:
    """One partition after the other, keys or not; those without a leader are left out while others have one."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def partition(
        self, topic: str, key: Any, key_bytes: bytes | None, value: Any, value_bytes: bytes | None, view: ClusterView
    ) -> int:
        count = self._counts.get(topic, 0)
        self._counts[topic] = count + 1
        available = view.available_partitions(topic)
        return available[count % len(available)] if available else count % len(view.partitions(topic))


class _FunctionPartitioner:
    """The other form of plug-in, as kafka-python and aiokafka have it: a function of the key's bytes, all partitions,
    and those that have a leader."""

    def __init__(self, function: Callable[[bytes | None, Sequence[int], Sequence[int]], int]) -> None:
        self._function = function

    def partition(
        self, topic: str, key: Any, key_bytes: bytes | None, value: Any, value_bytes: bytes | None, view: ClusterView
    ) -> int:
        everyone = [each.partition for each in view.partitions(topic)]
        return self._function(key_bytes, everyone, list(view.available_partitions(topic)))


BUILTIN: Final[Mapping[str, type[Partitioner]]] = {"roundrobin": RoundRobinPartitioner}


def as_partitioner(given: Any, settings: Mapping[str, Any]) -> Partitioner | None:
    """What `partitioner.class` names: a built-in, an object or class with `partition`, or a function; None for none."""
    found = given.resolve(BUILTIN) if isinstance(given, Plugin) else BUILTIN.get(given, given) if given else None
    if found is None:
        return None
    if isinstance(found, type):
        found = found()
    if not hasattr(found, "partition"):
        if not callable(found):
            raise SettingsError(f"partitioner.class is {given!r}, which has no method partition() and is no function")
        found = _FunctionPartitioner(found)
    configure = getattr(found, "configure", None)
    if configure is not None:
        configure(settings)
    partitioner: Partitioner = found
    return partitioner


def checked_partition(number: Any, topic: str, view: ClusterView) -> int:
    """What a plug-in answered, if it is a partition of the topic."""
    count = len(view.partitions(topic))
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < count:
        known = f"which has partitions 0 to {count - 1}"
        raise ValueError(f"the partitioner answered {number!r} for topic {topic!r}, {known}")
    return number


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Where all Kafka clients (of Java's default) send this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class NodeDelays:
    """Which nodes have had something to take for so long without taking it that they are better avoided."""

    __slots__ = ("_drained_ms", "_ready_ms", "_timeout_ms")

    def __init__(self, availability_timeout_ms: int) -> None:
        self._timeout_ms = availability_timeout_ms
        self._drained_ms: dict[int, int] = {}
        self._ready_ms: dict[int, int] = {}

    def note(self, node_id: int, now_ms: int, can_drain: bool) -> None:
        """There was something for this node, and it could be sent there or not."""
        if self._timeout_ms <= 0:
            return
        self._ready_ms[node_id] = now_ms
        if can_drain or node_id not in self._drained_ms:
            self._drained_ms[node_id] = now_ms

    def is_available(self, node_id: int) -> bool:
        return self._timeout_ms <= 0 or (
            self._ready_ms.get(node_id, 0) - self._drained_ms.get(node_id, 0) <= self._timeout_ms
        )


def next_sticky_partition(
    topic: str,
    view: ClusterView,
    randomness: Random,
    queue_lengths: Sequence[int] | None = None,
    delays: NodeDelays | None = None,
) -> int:
    """Where records without a key go from now on.

    With `queue_lengths` (by number of partition) the shorter a queue is, the likelier: a broker that takes batches
    slowly gets fewer. Partitions of nodes that do not take any are left out, as long as others are there.
    """
    available = view.available_partitions(topic)
    if not available:
        return randomness.randrange(len(view.partitions(topic)))
    if len(available) == 1:
        return available[0]
    if queue_lengths is None:
        return available[randomness.randrange(len(available))]
    partitions = view.partitions(topic)
    taken = [
        number for number in available if delays is None or delays.is_available(partitions[number].leader_id)
    ] or list(available)
    lengths = [queue_lengths[number] if number < len(queue_lengths) else 0 for number in taken]
    longest = max(lengths) + 1
    weights = list(accumulate(longest - length for length in lengths))
    return taken[bisect_right(weights, randomness.randrange(weights[-1]))]
