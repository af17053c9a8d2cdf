"""The cores touch the world only through what they are handed: no sockets, clocks, threads or files of their own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import barnabas

ROOT = Path(barnabas.__file__).parent

FORBIDDEN = {
    "asyncio",
    "datetime",
    "multiprocessing",
    "os",
    "random",
    "secrets",
    "selectors",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "uuid",
}

#: Where the world is met, and with what.
ALLOWED = {
    "base/runtime.py": {"time"},
    "base/properties.py": {"os"},
    "storage/manager.py": {"asyncio"},
    "storage/real_files.py": {"os", "threading"},
    "storage/open_files.py": {"os", "threading"},
    "testing/sim/faults.py": {"os"},
}


def imports(path: Path) -> Iterator[str]:
    """The modules that a file imports by name. The type `Random` is fine: an instance must still be handed in."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and [alias.name for alias in node.names] != ["Random"]:
            yield node.module.partition(".")[0]


def opens_files(path: Path) -> bool:
    calls = (node.func for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
    return any(isinstance(called, ast.Name) and called.id == "open" for called in calls)


def core_files() -> list[Path]:
    packages = ("base", "wire", "records", "storage", "testing")
    return [path for package in packages for path in sorted((ROOT / package).rglob("*.py"))]


def test_cores_import_nothing_that_reaches_out() -> None:
    found = {
        str(path.relative_to(ROOT)): sorted(reached)
        for path in core_files()
        if (reached := set(imports(path)) & FORBIDDEN - ALLOWED.get(str(path.relative_to(ROOT)), set()))
    }
    assert len(core_files()) > 150
    assert found == {}


def test_cores_open_no_files() -> None:
    assert [str(path.relative_to(ROOT)) for path in core_files() if opens_files(path)] == []
