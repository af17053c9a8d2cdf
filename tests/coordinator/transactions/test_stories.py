"""Stories of transactional ids, told in `stories/`: what is asked, what is written, and what comes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.coordinator.transactions.transcripts import Player, play
from tests.stories import assert_played_as_told, stories_beside

STORIES = stories_beside(__file__)


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    assert_played_as_told(path, play)


class _ReloadingPlayer(Player):
    """Reads the log anew after each step: who takes over then knows the same, and has the same markers to send."""

    compared = 0

    def after_step(self) -> None:
        bench = self.bench
        markers = bench.markers
        live = dict(bench.shard.stored.latest())
        loaded = bench.loaded()
        assert dict(loaded.shard.stored.latest()) == live
        prepared = {name for name, metadata in live.items() if metadata.state.is_prepared}
        assert set(bench.markers.sent) == prepared
        bench.markers = markers
        self.compared += len(live)


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_another_node_could_take_over_at_any_point_of_a_story(path: Path) -> None:
    player = _ReloadingPlayer()
    list(player.play(path.read_text().splitlines()))
    assert player.compared
