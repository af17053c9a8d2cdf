"""When a person hears of what keeps a client from its work: soon, then ever less often, and once when it is over."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Mapping

from barnabas.base.error_codes import ErrorCode
from barnabas.client.core.cluster_view import ClusterView, Node, PartitionInfo, TopicView
from barnabas.client.core.troubles import (
    AGAIN_AFTER_MS,
    FIRST_AFTER_MS,
    LONGEST_PAUSE_MS,
    Trouble,
    Troubles,
    listed,
    topic_ended,
    topic_troubles,
)

REFUSED: Mapping[Hashable, Trouble] = {"a": Trouble("a refuses")}


def refused(tries: int) -> dict[Hashable, Trouble]:
    return {"a": Trouble("a refuses", tries)}


def never(_: Hashable) -> None:
    return None


def told_over(troubles: Troubles, until_ms: int, present: Mapping[Hashable, Trouble] | None = None) -> list[int]:
    """When lines come if it is looked at as often as `next_look_in_ms` says, with a try before each look."""
    times, now_ms = [], 0
    while now_ms <= until_ms:
        if troubles.look(present or refused(now_ms), never, now_ms):
            times.append(now_ms)
        now_ms += max(1, math.ceil(troubles.next_look_in_ms(now_ms)))
    return times


def test_the_first_line_comes_within_three_seconds_and_the_pauses_double_up_to_five_minutes() -> None:
    times = told_over(Troubles(), 3_600_000)
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert times[0] == FIRST_AFTER_MS < 3000
    assert pauses[:5] == [10_000, 20_000, 40_000, 80_000, 160_000]
    assert set(pauses[5:]) == {LONGEST_PAUSE_MS}


def test_what_passes_soon_is_not_worth_a_line_nor_is_its_end() -> None:
    troubles = Troubles()
    assert troubles.look(REFUSED, never, 0) == []
    assert troubles.look({}, lambda _: "a answers", FIRST_AFTER_MS) == []
    assert troubles.next_look_in_ms(FIRST_AFTER_MS) == math.inf, "nothing is left to look at"
    assert troubles.look(REFUSED, never, FIRST_AFTER_MS + 100) == [], "it begins anew"
    assert troubles.look(REFUSED, never, 2 * FIRST_AFTER_MS + 100) == ["a refuses"]


def test_the_end_is_told_once_of_what_was_told() -> None:
    troubles = Troubles()
    troubles.look(REFUSED, never, 0)
    assert troubles.look(REFUSED, never, 2000) == ["a refuses"]
    assert troubles.look({}, lambda _: "a answers", 2500) == ["a answers"]
    assert troubles.look({}, lambda _: "a answers", 2600) == []


def test_that_nobody_tries_any_more_is_no_end() -> None:
    troubles = Troubles()
    troubles.look(REFUSED, never, 0)
    assert troubles.look(refused(1), never, 2000) == ["a refuses"]
    assert troubles.look({}, never, 3000) == []
    assert troubles.look(refused(2), never, 4000) == [], "the next call meets the same trouble"
    assert troubles.look(refused(3), never, 2000 + AGAIN_AFTER_MS) == ["a refuses"]


def test_a_line_is_repeated_only_after_another_try() -> None:
    troubles = Troubles()
    assert told_over(troubles, 3_600_000, refused(1)) == [FIRST_AFTER_MS]
    assert troubles.look(refused(2), never, 3_600_001) == ["a refuses"]


def test_what_comes_and_goes_is_told_no_more_often_than_what_stays() -> None:
    troubles = Troubles()
    lines = []
    for now_ms in range(0, 600_000, 1000):
        is_there = now_ms % 10_000 < 8_000
        present = refused(now_ms) if is_there else {}
        lines += troubles.look(present, lambda _: "a answers", now_ms)
    assert lines.count("a refuses") == lines.count("a answers") <= 8


def test_what_is_met_in_short_meetings_is_told_all_the_same() -> None:
    """A lookup that ends and begins again, say, with a moment in between."""
    troubles = Troubles()
    for now_ms in range(0, FIRST_AFTER_MS, 500):
        assert troubles.look(refused(now_ms), never, now_ms) == []
        assert troubles.look({}, never, now_ms + 400) == []
    assert troubles.look(refused(9), never, FIRST_AFTER_MS) == ["a refuses"]


def test_nothing_is_said_right_before_an_error_says_it() -> None:
    troubles = Troubles()
    troubles.look(refused(1), never, 0, error_at_ms=2000)
    assert troubles.look(refused(2), never, 1600, error_at_ms=2000) == []
    assert troubles.next_look_in_ms(1600) > 400
    assert troubles.look(refused(3), never, 2001) == ["a refuses"], "if it does not, somebody must"


def test_what_was_long_ago_is_forgotten() -> None:
    troubles = Troubles()
    for number in range(100):
        troubles.look({number: Trouble("x")}, never, number * 10_000)
    troubles.look({}, never, 10_000_000)
    troubles.look({}, never, 20_000_000)
    assert len(troubles._known) == 0


def view(*topics: TopicView) -> ClusterView:
    return ClusterView(1, "c", None, {1: Node(1, "h", 9)}, topics)


def test_the_words_for_topics() -> None:
    def partition(number: int, leader: int) -> PartitionInfo:
        return PartitionInfo("t", number, leader, replicas=(2, 3))

    def text(topic: TopicView) -> str | None:
        found = topic_troubles(view(topic), [topic.name, "not asked for yet"], 1)
        return found["topic", topic.name].text if found else None

    unknown = text(TopicView("t", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert unknown is not None
    assert unknown.startswith("topic 't' does not exist")
    assert "Check its name" in unknown
    other = text(TopicView("t", error_code=ErrorCode.LEADER_NOT_AVAILABLE))
    assert other is not None
    assert "LEADER_NOT_AVAILABLE" in other
    assert text(TopicView("t", partitions=(partition(0, 1),))) is None
    one = text(TopicView("t", partitions=(partition(0, 1), partition(1, -1))))
    assert one == (
        "topic 't': partition 1 has no leader, so that nobody can read there or write; start a broker that has a "
        "replica (2, 3)"
    )
    gone = text(TopicView("t", partitions=(partition(0, 1), partition(1, -1), partition(2, 7))))
    assert gone is not None
    assert "partitions 1, 2 have no leader" in gone
    all_of_them = text(TopicView("t", partitions=(partition(0, -1),)))
    assert all_of_them is not None
    assert "none of its partitions has a leader" in all_of_them


def test_a_topics_trouble_ends_when_its_partitions_have_leaders() -> None:
    led, orphan = PartitionInfo("t", 0, 1), PartitionInfo("t", 0, -1)
    assert topic_ended(view(TopicView("t", partitions=(led,))), "t") is not None
    assert topic_ended(view(TopicView("t", partitions=(orphan,))), "t") is None
    assert topic_ended(view(), "t") is None, "nobody wants it any more"


def test_long_lists_are_cut() -> None:
    assert listed([str(each) for each in range(9)]) == "0, 1, 2, 3, 4 and 4 more"
