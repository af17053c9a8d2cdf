"""Stories of a quorum, in `stories/` and in docs/raft.md, retold and compared. `BARNABAS_RECORD=1` writes them anew."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.raft.story import retell

DOCUMENT = Path(__file__).parents[2] / "docs" / "raft.md"
STORIES = sorted((Path(__file__).parent / "stories").glob("*.txt"))
#: Stories in the document, fenced.
FENCED = re.compile(r"(?<=^```raft\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    told = path.read_text(encoding="utf-8")
    retold = retell(told)
    if os.environ.get("BARNABAS_RECORD"):
        path.write_text(retold, encoding="utf-8")
    assert retold == told


def test_the_stories_of_the_document() -> None:
    told = DOCUMENT.read_text(encoding="utf-8")
    retold = FENCED.sub(lambda match: retell(match[1]), told)
    if os.environ.get("BARNABAS_RECORD"):
        DOCUMENT.write_text(retold, encoding="utf-8")
    assert len(FENCED.findall(told)) > 10
    assert retold == told
