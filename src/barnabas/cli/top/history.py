"""When offsets were written, by what was seen of the ends of partitions: so lag is told in seconds where nobody tells
it. A record was written between the look that did not see it and the one that did."""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import Final, NamedTuple

from barnabas.base.ids import TopicPartition

#: Looks that are kept of a partition: half an hour, at two seconds.
_MOST_LOOKS: Final = 900
#: And of all partitions together, some 80 MiB: of more than 555, each gets its share of them, and at least a few.
_MOST_OF_ALL: Final = 500_000
_FEWEST_LOOKS: Final = 4


class Age(NamedTuple):
    """How long ago a record was written; `is_at_least` if it is older than all that was seen."""

    seconds: float
    is_at_least: bool = False


class EndHistory:
    """Of each partition, at which time it ended where: pairs that grow in both."""

    def __init__(self) -> None:
        self._looks: dict[TopicPartition, list[tuple[int, int]]] = {}

    def note(self, partition: TopicPartition, end_offset: int, at_ms: int) -> None:
        """The partition ends there now."""
        looks = self._looks.setdefault(partition, [])
        if looks and end_offset < looks[-1][0]:
            looks.clear()  # it was made anew, or cut
        if len(looks) > 1 and looks[-1][0] == looks[-2][0] == end_offset:
            looks.pop()  # of a partition that nobody writes, the first and the last look are enough
        looks.append((end_offset, at_ms))
        self._bound(looks)

    def _bound(self, looks: list[tuple[int, int]]) -> None:
        """Where there are very many partitions, looks become rarer the older they are, and the first one stays: what
        lies between two is told by their distance."""
        most = max(_FEWEST_LOOKS, _MOST_OF_ALL // len(self._looks))
        while len(looks) > most and most < _MOST_LOOKS:
            del looks[1:-1:2]
        del looks[:-_MOST_LOOKS]

    def note_written(self, partition: TopicPartition, offset: int, at_ms: int) -> None:
        """The record at an offset was written then: until then, the partition ended there."""
        insort(self._looks.setdefault(partition, []), (offset, at_ms))

    def forget_others(self, partitions: frozenset[TopicPartition]) -> None:
        """Keep nothing of partitions that are gone."""
        for gone in self._looks.keys() - partitions:
            del self._looks[gone]

    def age(self, partition: TopicPartition, offset: int, now_ms: int) -> Age:
        """How long ago the record at this offset was written."""
        looks = self._looks.get(partition)
        if not looks:
            return Age(0.0, is_at_least=True)
        # The first look that saw it, at which the partition ended behind it.
        seen = bisect_right(looks, (offset, 1 << 62))
        if seen == len(looks):
            return Age(0.0)  # nobody has seen it yet: it is younger than the last look
        if seen == 0:
            return Age(max(0.0, (now_ms - looks[0][1]) / 1000), is_at_least=True)
        (end_before, before_ms), (end_after, after_ms) = looks[seen - 1], looks[seen]
        share = (offset - end_before) / (end_after - end_before)
        return Age(max(0.0, (now_ms - before_ms - share * (after_ms - before_ms)) / 1000))
