"""One class name, one meaning; what is private to an object is touched by its own module alone where we said so; and
tests of the clients lie where the code lies."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import barnabas

ROOT = Path(barnabas.__file__).parent

#: Named by Kafka's schemas, each inside its message.
SCHEMAS = ("wire/messages", "wire/stored", "wire/embedded")
#: The same thing for programs with and without asyncio.
TWO_CLIENTS = {"Admin", "Consumer", "Producer"}
#: Kafka's words, for the same thing on either side of the connection: neither side imports the other.
BOTH_SIDES = {
    *("AclOperation", "ConfigResource", "ConfigResourceType", "ConfigSource", "Endpoint", "Node", "PatternType"),
    "TransactionState",
}

#: Modules that once reached into others.
KEEP_TO_THEMSELVES = ("client/consumer/range_reading.py",)

#: Tests of whole clients, which belong to no package below `client`.
WHOLE_CLIENTS = {"faults"}


def test_a_class_name_has_one_meaning() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        where = path.relative_to(ROOT).as_posix()
        if where.startswith(SCHEMAS):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(where)
    many = {name: places for name, places in found.items() if len(places) > 1}
    assert {name: many[name] for name in many.keys() - TWO_CLIENTS - BOTH_SIDES} == {}
    assert many.keys() >= TWO_CLIENTS | BOTH_SIDES, "an exception that is not needed any more"
    assert all(len(many[name]) == 2 for name in TWO_CLIENTS | BOTH_SIDES)


def test_nobody_there_reaches_into_others() -> None:
    for where in KEEP_TO_THEMSELVES:
        tree = ast.parse((ROOT / where).read_text(encoding="utf-8"))
        reached = [
            ast.unparse(node)
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and node.attr.startswith("_")
            and not (isinstance(node.value, ast.Name) and node.value.id == "self")
        ]
        assert reached == [], where


def test_folders_of_the_clients_tests_mirror_the_package() -> None:
    tests = Path(__file__).parent / "client"
    folders = {path.parent.relative_to(tests).as_posix() for path in tests.rglob("test_*.py")} - WHOLE_CLIENTS
    assert [each for each in sorted(folders) if not (ROOT / "client" / each / "__init__.py").is_file()] == []
