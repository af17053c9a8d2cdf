"""What a query's checkpoint says, as data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

#: Keys by which the first batch's end carries its start: ours, and passed over by the JVM connector.
START_MARKER = "@start"


def offsets(checkpoint: Path) -> dict[int, dict[str, Any]]:
    """The end of each planned batch of a query with one source, without our markers."""
    return {batch: _without_markers(end) for batch, end in raw_offsets(checkpoint).items()}


def raw_offsets(checkpoint: Path) -> dict[int, dict[str, Any]]:
    """The end of each planned batch, as it is written."""
    found: dict[int, dict[str, Any]] = {}
    for batch, text in _entries(checkpoint / "offsets").items():
        version, _, source = text.splitlines()
        assert version in ("v1", "v2")
        # In the second version sources have names.
        found[batch] = json.loads(source if version == "v1" else source.partition(":")[2])
    return found


def version(checkpoint: Path) -> str:
    """Of the log of offsets, as its newest entry tells it."""
    return _entries(checkpoint / "offsets")[max(planned(checkpoint))].splitlines()[0]


def query_id(checkpoint: Path) -> str:
    return str(json.loads((checkpoint / "metadata").read_text())["id"])


def commits(checkpoint: Path) -> dict[int, Any]:
    """What is written of each batch that was done."""
    return {batch: json.loads(text.splitlines()[1]) for batch, text in _entries(checkpoint / "commits").items()}


def planned(checkpoint: Path) -> list[int]:
    """The batches that were planned, also while the query runs."""
    return _numbers(checkpoint / "offsets")


def is_between_plan_and_commit(checkpoint: Path) -> bool:
    """Whether a batch is planned and not done."""
    return bool(set(planned(checkpoint)) - set(_numbers(checkpoint / "commits")))


def files_of_table(table: Path) -> list[Path]:
    """The files that count in a table which a stream writes: those in its log. Crashes leave others beside them."""
    log = table / "_spark_metadata"
    compacted = [int(path.name.removesuffix(".compact")) for path in log.glob("*.compact")]
    newest = max(compacted, default=-1)
    entries = [log / f"{newest}.compact"] if compacted else []
    entries += [log / str(batch) for batch in _numbers(log) if batch > newest]
    lines = [json.loads(line) for entry in entries for line in entry.read_text().splitlines()[1:]]
    return [Path(unquote(urlsplit(line["path"]).path)) for line in lines if line["action"] == "add"]


def _entries(folder: Path) -> dict[int, str]:
    return {number: (folder / str(number)).read_text() for number in _numbers(folder)}


def _numbers(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.glob("*") if path.name.isdigit())


def _without_markers(end: dict[str, Any]) -> dict[str, Any]:
    return {topic: partitions for topic, partitions in end.items() if not topic.startswith(START_MARKER)}
