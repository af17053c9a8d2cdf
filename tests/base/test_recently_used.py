"""What is kept of endlessly many stays bounded, in number and in work."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.recently_used import RecentlyUsed


@dataclass
class Desk:
    """Values are the times until which their owners say something."""

    most: int
    looks: int = 0
    forgotten: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kept: RecentlyUsed[str, int] = RecentlyUsed(self.is_silent, self.forgotten.append, most=self.most)

    def is_silent(self, _: str, until_ms: int, now_ms: int) -> bool:
        self.looks += 1
        return now_ms >= until_ms

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.kept.items()]


def test_of_too_many_the_one_that_was_used_longest_ago_is_forgotten() -> None:
    desk = Desk(most=3)
    for name in "abc":
        desk.kept.add(name, 100, 0)
    for name in "bca":
        assert desk.kept.use(name) == 100
    assert desk.kept.peek("b") == 100, "which is no use"
    desk.kept.add("d", 100, 0)
    assert sorted(desk.names) == ["a", "c", "d"]
    assert desk.kept.use("b") is None
    assert desk.forgotten == [100]


def test_silent_ones_become_fewer_while_others_come() -> None:
    desk = Desk(most=1000)
    for number in range(100):
        desk.kept.add(f"once-{number}", 50, 0)
    for number in range(100):
        desk.kept.add(f"later-{number}", 200, 100)
    assert all(name.startswith("later") for name in desk.names)


def test_one_that_says_something_for_long_hides_no_others() -> None:
    desk = Desk(most=1000)
    for number in range(100):
        desk.kept.add(f"{number}", 1_000_000 if number < 5 else 50, 0)
    for number in range(100):
        desk.kept.add(f"later-{number}", 200, 100)
    assert len(desk.names) <= 5 + 100
    assert {"0", "1", "2", "3", "4"} <= set(desk.names)


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 30), st.integers(0, 10)), max_size=60))
def test_whatever_comes_it_is_bounded_and_who_says_something_is_kept_below_the_bound(
    steps: list[tuple[str, int, int]],
) -> None:
    bounded, roomy = Desk(most=4), Desk(most=100)
    until: dict[str, int] = {}
    now_ms = 0
    for name, lasts_ms, passes_ms in steps:
        now_ms += passes_ms
        for desk in (bounded, roomy):
            looks = desk.looks
            if desk.kept.use(name) is None:
                desk.kept.add(name, now_ms + lasts_ms, now_ms)
                if desk is roomy:
                    until[name] = now_ms + lasts_ms
            assert desk.looks <= looks + 2
            assert name in desk.names
        assert len(bounded.kept) == len(bounded.names) <= 4
        assert {each for each, end_ms in until.items() if end_ms > now_ms} <= set(roomy.names)
