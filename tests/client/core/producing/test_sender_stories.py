"""The stories in `stories/sender_*.txt`, played and compared; with BARNABAS_RECORD set they are written anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.client.core.producing.sender_stories import play

STORIES = sorted((Path(__file__).parent / "stories").glob("sender_*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    written = path.read_text(encoding="utf-8")
    played = play(written)
    if os.environ.get("BARNABAS_RECORD"):
        path.write_text(played, encoding="utf-8")
    assert played == written


def test_there_are_stories() -> None:
    assert len(STORIES) >= 10
