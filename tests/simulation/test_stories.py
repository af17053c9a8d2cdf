"""Stories of a node and a client, told in `stories/` field by field. `BARNABAS_RECORD=1` writes them anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.transcripts import play
from tests.stories import assert_played_as_told, stories_beside

STORIES = stories_beside(__file__)


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    assert_played_as_told(path, play)
