"""Stories as text, in files beside the tests: lines that ask, and what comes of each below it.

A test plays the lines that ask and compares everything; with BARNABAS_RECORD=1 the files are written anew, and the diff
is what one reviews.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import ClassVar


def stories_beside(test_file: str, pattern: str = "*.txt") -> list[Path]:
    return sorted((Path(test_file).parent / "stories").glob(pattern))


def assert_played_as_told(path: Path, play: Callable[[str], str]) -> None:
    told = path.read_text(encoding="utf-8")
    played = play(told)
    if os.environ.get("BARNABAS_RECORD"):
        path.write_text(played, encoding="utf-8")
    assert played == told


def options(words: Iterable[str]) -> dict[str, str]:
    """What a line says as `name=value`; a word alone has an empty value."""
    return {name: value for name, _, value in (word.partition("=") for word in words)}


class StoryPlayer(ABC):
    """Plays the lines that ask. Lines of comment, and empty ones, stay; those that begin with one of `OUTPUT` are made
    anew."""

    OUTPUT: ClassVar[tuple[str, ...]]

    def played(self, script: str) -> str:
        """The dialogue that the asking lines of a script lead to."""
        return "\n".join(self.play(script.splitlines())) + "\n"

    def play(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            if line.startswith(self.OUTPUT):
                continue
            yield line
            words = line.split()
            if not words or line.startswith("#"):
                continue
            for told in self.step(words):
                yield told.rstrip()
            self.after_step()

    @abstractmethod
    def step(self, words: list[str]) -> Iterator[str]:
        """What comes of one line."""

    def after_step(self) -> None:
        """For those who want to look between the steps."""
        return
