"""Stories of a quorum, in `stories/` and in docs/raft.md, retold and compared. `BARNABAS_RECORD=1` writes them anew.

Of the mistakes that others made with Raft, those that concern the machine are stories: their comments name the tickets.
A voter that was removed and joined again by itself (KAFKA-19850) cannot be: nobody joins unasked here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.raft.story import Story, retell
from tests.stories import assert_played_as_told, stories_beside

DOCUMENT = Path(__file__).parents[2] / "docs" / "raft.md"
STORIES = stories_beside(__file__)
#: Stories in the document, fenced.
FENCED = re.compile(r"(?<=^```raft\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)


def retell_document(text: str, make: Callable[[], Story] = Story) -> tuple[str, list[Story]]:
    """A story that does not say who votes goes on where the one before it ended."""
    stories: list[Story] = []

    def one(match: re.Match[str]) -> str:
        if re.search(r"^> (voters|format) ", match[1], re.MULTILINE):
            stories.append(make())
        return retell(match[1], stories[-1])

    return FENCED.sub(one, text), stories


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    assert_played_as_told(path, retell)


def test_the_stories_of_the_document() -> None:
    told = DOCUMENT.read_text(encoding="utf-8")
    retold, stories = retell_document(told)
    if os.environ.get("BARNABAS_RECORD"):
        DOCUMENT.write_text(retold, encoding="utf-8")
    assert len(stories) > 10
    assert retold == told
