"""What keeps a client from its work, and when a person should hear of it.

A client tries again and again, which is right, and says nothing meanwhile, which is not: a wrong address or a misspelt
topic would look like an empty one. `Troubles` is shown what is wrong whenever that may have changed, and says which
lines are due: one soon after a trouble began, then ever fewer, and one when it is over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Final, NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.client.core.cluster_view import ClusterView, TopicView

#: Leaders change and brokers start again within this time; what lasts longer is worth a line.
FIRST_AFTER_MS: Final = 1_500
#: How long after the first line the second follows. Each pause is twice the one before.
AGAIN_AFTER_MS: Final = 10_000
LONGEST_PAUSE_MS: Final = 300_000
#: Whoever gets an error within this time need not read the same in a line before.
ERROR_IS_NEAR_MS: Final = 1_000
#: How soon to look again where a line is due and waits for another try.
_RECHECK_MS: Final = 1_000
#: A trouble that nobody meets any more may be met again, as by the next of several calls. Then it is the same one.
_UNTOLD_KEPT_MS: Final = 5_000
_TOLD_KEPT_MS: Final = LONGEST_PAUSE_MS
_SHOWN_AT_MOST: Final = 5


class Trouble(NamedTuple):
    """Something that is wrong now: what is tried, what stands in its way, and what to check."""

    text: str
    #: How often it was tried in vain so far. A line is repeated only if there was another try.
    tries: int = 0


class _Known:
    """A trouble that was seen, and what was said about it."""

    __slots__ = ("gone_at_ms", "is_told", "since_ms", "told_at_ms", "told_count", "tries")

    def __init__(self, now_ms: int) -> None:
        self.since_ms = now_ms
        self.is_told = False
        self.told_at_ms = -math.inf
        self.told_count = 0
        self.tries = -1
        self.gone_at_ms: int | None = None

    @property
    def due_ms(self) -> float:
        if not self.told_count:
            return self.since_ms + FIRST_AFTER_MS
        pause_ms = min(AGAIN_AFTER_MS << min(self.told_count - 1, 16), LONGEST_PAUSE_MS)
        # What comes back soon is not told more often than what stays.
        return max(self.told_at_ms + pause_ms, self.since_ms + FIRST_AFTER_MS)


class Troubles:
    """See the module.

    Guarantees: what lasts is told between `FIRST_AFTER_MS` and the next look after it; the pauses between two lines
    about the same thing double up to `LONGEST_PAUSE_MS`; an end is told only of what was told.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, _Known] = {}
        self._present: Collection[Hashable] = ()
        self._error_at_ms = math.inf

    def look(
        self,
        present: Mapping[Hashable, Trouble],
        ended: Callable[[Hashable], str | None],
        now_ms: int,
        error_at_ms: float = math.inf,
    ) -> list[str]:
        """The lines that are due. `ended` is asked about what was told and is not `present`: how it ended, or None if
        nobody knows, since nobody tries any more. At `error_at_ms` somebody will be told by an error."""
        self._present = list(present)
        self._error_at_ms = error_at_ms
        lines = [line for key, each in present.items() if (line := self._met(key, each, now_ms)) is not None]
        for key in [key for key in self._known if key not in present]:
            line = self._missed(key, ended, now_ms)
            if line is not None:
                lines.append(line)
        return lines

    def next_look_in_ms(self, now_ms: int) -> float:
        """When to look again if nothing happens; infinite for never."""
        waits = (self._known[key].due_ms - now_ms for key in self._present)
        wait_ms = min((each if each > 0 else _RECHECK_MS for each in waits), default=math.inf)
        if self._error_at_ms - now_ms < ERROR_IS_NEAR_MS:
            return max(wait_ms, self._error_at_ms - now_ms + 1)
        return wait_ms

    def _met(self, key: Hashable, trouble: Trouble, now_ms: int) -> str | None:
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _Known(now_ms)
        if known.gone_at_ms is not None:
            if not known.is_told and now_ms - known.gone_at_ms >= _UNTOLD_KEPT_MS:
                known.since_ms = now_ms
            known.gone_at_ms = None
        is_due = now_ms >= known.due_ms and (not known.is_told or trouble.tries != known.tries)
        if not is_due or 0 <= self._error_at_ms - now_ms < ERROR_IS_NEAR_MS:
            return None
        known.is_told = True
        known.told_at_ms = now_ms
        known.told_count += 1
        known.tries = trouble.tries
        return trouble.text

    def _missed(self, key: Hashable, ended: Callable[[Hashable], str | None], now_ms: int) -> str | None:
        known = self._known[key]
        how = ended(key)
        if known.gone_at_ms is None:
            known.gone_at_ms = now_ms
        was_told = known.is_told
        if how is not None:
            known.is_told = False
            # It has ended: if it comes again, it begins then.
            known.gone_at_ms = min(known.gone_at_ms, now_ms - _UNTOLD_KEPT_MS)
        kept_ms = _TOLD_KEPT_MS if known.told_count else _UNTOLD_KEPT_MS
        if now_ms - max(known.gone_at_ms, known.told_at_ms) >= kept_ms:
            del self._known[key]
        return how if was_told else None


def topic_troubles(view: ClusterView, topics: Collection[str], tries: int) -> dict[Hashable, Trouble]:
    """What is wrong with the topics that a client wants."""
    found: dict[Hashable, Trouble] = {}
    for name in topics:
        entry = view.entry(name)
        text = None if entry is None else _topic_text(entry, view)
        if text is not None:
            found["topic", name] = Trouble(text, tries)
    return found


def topic_ended(view: ClusterView, topic: str) -> str | None:
    """The end of a topic's trouble, if it has ended."""
    entry = view.entry(topic)
    if entry is None or _topic_text(entry, view) is not None:
        return None
    return f"topic {topic!r} can be used now: its partitions have leaders"


def _topic_text(topic: TopicView, view: ClusterView) -> str | None:
    code = topic.error_code
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return (
            f"topic {topic.name!r} does not exist, say the brokers; it is asked for until somebody creates it. Check "
            "its name"
        )
    if code:
        return f"topic {topic.name!r} cannot be used: the brokers answer {code.name} ({code.text}); it is tried again"
    orphans = [each for each in topic.partitions if each.leader_id not in view.nodes]
    if not orphans:
        return None
    numbers = listed([str(each.partition) for each in orphans])
    if len(orphans) == len(topic.partitions):
        who = "none of its partitions has a leader"
    else:
        who = f"partitions {numbers} have no leader" if len(orphans) > 1 else f"partition {numbers} has no leader"
    brokers = listed([str(each) for each in sorted({replica for each in orphans for replica in each.replicas})])
    where = f"; start a broker that has a replica ({brokers})" if brokers else ""
    return f"topic {topic.name!r}: {who}, so that nobody can read there or write{where}"


def listed(names: Collection[str]) -> str:
    """Some names, the first of them if there are many."""
    shown = list(names)[:_SHOWN_AT_MOST]
    rest = len(names) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")
