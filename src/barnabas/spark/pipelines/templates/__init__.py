"""The example project: clicks from a topic into a table, sessions into a topic, what is broken to the dead letters.

Its files lie beside this one as they will lie in the project; what differs from project to project stands in them as
`{{ name }}` and is filled in when they are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from barnabas.base.errors import BarnabasError

__all__ = ["EXAMPLE", "ProjectExistsError", "write_project"]

EXAMPLE: Final = "clickstream"
_NOT_OURS: Final = ("__pycache__",)


class ProjectExistsError(BarnabasError):
    """There is something in the folder already."""


def write_project(
    folder: str | Path, *, name: str | None = None, bootstrap_servers: str = "127.0.0.1:9092"
) -> tuple[Path, ...]:
    """Write the example project into a folder that is empty or not there yet; the files, in order of their names.

    `name` is what the pipeline is called: without one, what the folder is called.
    """
    root = Path(folder).absolute()
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise ProjectExistsError(f"{root} is not empty: choose a folder that is, or one that does not exist yet")
    values = {"name": name or root.name, "bootstrap_servers": bootstrap_servers}
    written = []
    for place, text in sorted(_texts(files(__name__) / EXAMPLE, Path())):
        target = root / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_filled(text, values), encoding="utf-8")
        written.append(target)
    return tuple(written)


def _texts(folder: Traversable, place: Path) -> Iterator[tuple[Path, str]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            if entry.name not in _NOT_OURS:
                yield from _texts(entry, place / entry.name)
        else:
            yield place / entry.name, entry.read_text(encoding="utf-8")


def _filled(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace("{{ " + name + " }}", value)
    return text
