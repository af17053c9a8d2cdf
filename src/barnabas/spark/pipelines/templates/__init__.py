"""The example project: clicks from a topic into a table, sessions into a topic, what is broken to the dead letters.

Its files lie beside this one as they will lie in the project; what differs from project to project stands in them as
`{{ name }}` and is filled in when they are written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from barnabas.base.errors import BarnabasError
from barnabas.spark.pipelines.project import check_path, check_text

__all__ = ["EXAMPLE", "ProjectExistsError", "check_folder", "write_project"]

EXAMPLE: Final = "clickstream"
_NOT_OURS: Final = ("__pycache__",)
_PLACEHOLDER: Final = re.compile(r"\{\{ (\w+) \}\}")


class ProjectExistsError(BarnabasError):
    """There is something in the folder already."""


def check_folder(folder: str | Path) -> None:
    """Whether a project may be written there; `ProjectExistsError` if there is something already, `ProjectError` if it
    could not be run there."""
    root = Path(folder).absolute()
    check_path(root)
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise ProjectExistsError(f"{root} is not empty: choose a folder that is, or one that does not exist yet")


def write_project(
    folder: str | Path, *, name: str | None = None, bootstrap_servers: str = "127.0.0.1:9092"
) -> tuple[Path, ...]:
    """Write the example project into a folder that is empty or not there yet; the files, in order of their names.

    `name` is what the pipeline is called: without one, what the folder is called.
    """
    check_folder(folder)
    root = Path(folder).absolute()
    check_text(name or "")
    check_text(bootstrap_servers)
    values = {
        "name": name or root.name,
        "bootstrap_servers": bootstrap_servers,
        "first_server": bootstrap_servers.partition(",")[0].strip(),
    }
    written = []
    for place, text in sorted(_texts(files(__name__) / EXAMPLE, Path())):
        target = root / place
        target.parent.mkdir(parents=True, exist_ok=True)
        # Without quotes, YAML takes 2024 for a number and `my: shop` for a mapping; it reads strings as JSON does.
        fitting = {key: _quoted(value) for key, value in values.items()} if target.suffix == ".yml" else values
        target.write_text(_filled(text, fitting), encoding="utf-8")
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
    # In one pass: what a value looks like is nobody's business.
    return _PLACEHOLDER.sub(lambda found: values[found[1]], text)


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
