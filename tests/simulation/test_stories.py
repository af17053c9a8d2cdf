"""Stories of a node and a client, told in `stories/` field by field. `BARNABAS_RECORD=1` writes them anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.simulation.transcripts import play

STORIES = sorted((Path(__file__).parent / "stories").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    told = path.read_text()
    played = play(told)
    if os.environ.get("BARNABAS_RECORD"):
        path.write_text(played)
    assert played == told
