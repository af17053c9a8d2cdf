"""Stories of the controller, told in `stories/`: what is asked, and what comes of it. `BARNABAS_RECORD=1` writes them
anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.metadata.transcripts import Player, play
from tests.stories import assert_played_as_told, stories_beside

STORIES = stories_beside(__file__)


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    assert_played_as_told(path, play)


class _ReplayingPlayer(Player):
    """Reads the log anew after each step and compares what comes of it with what the controller holds."""

    compared = 0

    def after_step(self) -> None:
        assert self.replayed() == self.controller.image
        self.compared += 1


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_start_at_any_point_of_a_story_finds_the_same_cluster(path: Path) -> None:
    player = _ReplayingPlayer()
    list(player.play(path.read_text().splitlines()))
    assert player.compared
