"""The stories in `stories/transaction_*.txt`, played and compared; with BARNABAS_RECORD set they are written anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client.core.producing.transaction_stories import play
from tests.stories import assert_played_as_told, stories_beside

STORIES = stories_beside(__file__, "transaction_*.txt")


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    assert_played_as_told(path, play)


def test_there_are_stories() -> None:
    assert len(STORIES) >= 10
