"""Stories of groups, told in `stories/`: what is asked, and what comes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.coordinator.classic.states import ClassicGroupState
from tests.coordinator.driver import durable, replayed
from tests.coordinator.transcripts import Player, play
from tests.stories import assert_played_as_told, stories_beside

STORIES = stories_beside(__file__)


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    assert_played_as_told(path, play)


class _ReloadingPlayer(Player):
    """Reads the log anew after each step and compares what must survive with what the shard holds."""

    compared = 0

    def after_step(self) -> None:
        bench = self.bench
        assert replayed(bench.shard) == replayed(bench.loaded().shard)
        if bench.held:
            return  # The log is ahead of what is committed.
        live, loaded = durable(bench.shard), durable(bench.loaded().shard)
        assert list(live) == list(loaded)
        for group_id, group in bench.groups.items():
            # A rebalance that is under way is not in the log: the generation before it is.
            if group.state in (ClassicGroupState.STABLE, ClassicGroupState.EMPTY):
                assert loaded[group_id] == live[group_id]
                self.compared += 1


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_restart_at_any_point_of_a_story_finds_the_same_groups(path: Path) -> None:
    player = _ReloadingPlayer()
    list(player.play(path.read_text().splitlines()))
    assert player.compared
