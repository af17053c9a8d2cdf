"""The ledger of `barnabas sim`: which seeds a commit has run, as lines of JSON. Append only, so that it can be resumed.

{"commit": "4fafa7a…", "scenario": "raft", "voters": 3, "depth": "model", "first": 1, "last": 200, "clean": 200,
 "failed": []}
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

import barnabas
from barnabas.base.errors import BarnabasError

_GIT_TIMEOUT_S: Final = 20


@dataclass(frozen=True, slots=True)
class LedgerKey:
    """Runs that count together."""

    commit: str
    scenario: str
    voters: int
    depth: str


class Ledger:
    """What is known of one key, and where more is written down. Without a path nothing is kept."""

    def __init__(self, path: Path | None, key: LedgerKey) -> None:
        self.key = key
        self._path = path
        self._done: set[int] = set()
        self._failed: set[int] = set()
        if path is not None and path.exists():
            self._read(path)

    def _read(self, path: Path) -> None:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
                key = LedgerKey(*(entry[name] for name in ("commit", "scenario", "voters", "depth")))
                first, last, failed = int(entry["first"]), int(entry["last"]), set(map(int, entry["failed"]))
            except (ValueError, KeyError, TypeError):
                raise BarnabasError(f"{path}, line {number}: no entry of a ledger of barnabas sim") from None
            if key == self.key:
                self._done.update(range(first, last + 1))
                self._failed |= failed

    @property
    def clean_count(self) -> int:
        return len(self._done - self._failed)

    @property
    def failed(self) -> list[int]:
        return sorted(self._failed)

    def without_done(self, seeds: Iterable[int]) -> Iterator[int]:
        """Seeds that were not run, or that failed."""
        return (seed for seed in seeds if seed not in self._done or seed in self._failed)

    def add(self, seeds: Iterable[int], failed: Iterable[int]) -> None:
        """Write down seeds that were run, a line for each run of neighbours."""
        bad = set(failed)
        lines = []
        for first, last in _ranges(seeds):
            here = sorted(seed for seed in bad if first <= seed <= last)
            entry = {"first": first, "last": last, "clean": last - first + 1 - len(here), "failed": here}
            lines.append(json.dumps(asdict(self.key) | entry))
            self._done.update(range(first, last + 1))
            self._failed -= set(range(first, last + 1))
        self._failed |= bad
        if self._path is not None and lines:
            with self._path.open("a", encoding="utf-8") as file:
                file.write("".join(f"{line}\n" for line in lines))


def _ranges(seeds: Iterable[int]) -> Iterator[tuple[int, int]]:
    first = last = None
    for seed in sorted(seeds):
        if last is not None and seed == last + 1:
            last = seed
            continue
        if first is not None and last is not None:
            yield first, last
        first = last = seed
    if first is not None and last is not None:
        yield first, last


def current_commit() -> str:
    """What the code that runs is: its commit, with a digest of what was changed since; outside of a work tree, its
    version."""
    directory = Path(barnabas.__file__).parent
    commit = _git(directory, "rev-parse", "HEAD")
    if commit is None:
        from barnabas._version import package_version

        return f"version {package_version()}"
    changed = _git(directory, "diff", "HEAD", "--", str(directory)) or ""
    return f"{commit}+{blake2b(changed.encode(), digest_size=4).hexdigest()}" if changed else commit


def _git(directory: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(directory), *arguments],
            capture_output=True,
            text=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
