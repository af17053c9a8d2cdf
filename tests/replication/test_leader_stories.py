"""Stories of leaders, told in `stories/`: what happens, and what comes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.replication.leader_transcripts import play
from tests.stories import assert_played_as_told, stories_beside

STORIES = stories_beside(__file__)


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    assert_played_as_told(path, play)
