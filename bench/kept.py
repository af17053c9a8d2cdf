"""Results of earlier commits, so that a loss shows: `bench/results.jsonl`, a line for each row of a table."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple

from bench.measure import Result

_FILE = Path(__file__).with_name("results.jsonl")
_LOSS = 0.9


class Kept(NamedTuple):
    """A row of a table as it once was. `commit` ends in + if something was changed and not committed."""

    commit: str
    day: str
    name: str
    ratio: float
    detail: str


def keep(name: str, result: Result) -> None:
    """Add a row of this commit."""
    if math.isnan(result.ratio):
        return
    day = datetime.now(UTC).date().isoformat()
    row = Kept(_commit(), day, name, round(result.ratio, 3), result.detail)
    with _FILE.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row._asdict(), ensure_ascii=False) + "\n")


def rows() -> Iterator[Kept]:
    if _FILE.exists():
        for line in _FILE.read_text(encoding="utf-8").splitlines():
            yield Kept(**json.loads(line))


def compared(name: str, result: Result) -> str:
    """How a result stands to the newest of another commit; nothing if there is none, or hardly a difference."""
    commit = _commit()
    before = [each for each in rows() if each.name == name and each.commit != commit]
    if not before or not before[-1].ratio or math.isnan(result.ratio):
        return ""
    change = result.ratio / before[-1].ratio
    return f"; was {before[-1].ratio:.2f}× at {before[-1].commit}" if not _LOSS <= change <= 1 / _LOSS else ""


def history(wanted: list[str]) -> Iterator[str]:
    """A line for each benchmark whose name has all of these words, and one below it for each commit."""
    found: dict[str, list[Kept]] = {}
    for each in rows():
        if all(word.lower() in each.name.lower() for word in wanted):
            found.setdefault(each.name, []).append(each)
    for name, all_of_it in found.items():
        yield name
        for each in all_of_it:
            yield f"  {each.day} {each.commit:<10} {each.ratio:>6.2f}×  {each.detail}"


@cache
def _commit() -> str:
    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=_FILE.parent, capture_output=True, text=True, check=False, timeout=30
        )
        return done.stdout.strip()

    is_changed = bool(git("status", "--porcelain", "--untracked-files=no", "--", "../src", "../bench/*.py"))
    return (git("rev-parse", "--short", "HEAD") or "unknown") + "+" * is_changed
