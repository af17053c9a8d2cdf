"""`barnabas metadata-shell`: the cluster's metadata as a tree to walk through. Kafka's `kafka-metadata-shell`."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import click

from barnabas.base.errors import BarnabasError
from barnabas.cli.main import FAILED, tell
from barnabas.cli.metadata_tree import Leaf, Tree, files_of, load_tree
from barnabas.cli.output import compact_json, is_terminal, say, shown

_PROMPT: Final = ">> "
_BRACES: Final = re.compile(r"\{([^{}]*)\}")


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("-s", "--snapshot", metavar="FILE", help="A .checkpoint or .log file of the metadata log.")
@click.option("-d", "--directory", metavar="DIR", help="A __cluster_metadata-0 directory, or the one that holds it.")
@click.option("--json", "as_json", is_flag=True, help="JSON for programs; only with a command.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def metadata_shell(snapshot: str | None, directory: str | None, as_json: bool, command: Sequence[str]) -> int:
    """Walk through the cluster's metadata as a tree.

    Without a COMMAND there is a prompt; `help` tells what can be typed there. The files are only read, so a node may be
    running on them.

    \b
    Examples:
      barnabas metadata-shell --directory barnabas-data
      barnabas metadata-shell -d barnabas-data ls /image/topics/byName
      barnabas metadata-shell -d barnabas-data --json cat /image/topics/byName/clicks
    """
    if (snapshot is None) == (directory is None):
        raise click.UsageError("give either --snapshot FILE or --directory DIR")
    shell = Shell(load_tree([Path(snapshot)] if snapshot else files_of(_log_directory(Path(directory or "")))))
    if command:
        return 0 if shell.run(list(command), as_json=as_json) else FAILED
    if as_json:
        raise click.UsageError("--json needs a command, as in: --json cat /image/features")
    shell.loop()
    return 0


def _log_directory(directory: Path) -> Path:
    inner = directory / "__cluster_metadata-0"
    return inner if inner.is_dir() else directory


class Shell:
    """A place in the tree, and the commands that can be typed there."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._place: list[str] = []
        self._history: list[str] = []
        self._is_over = False
        self._commands: dict[str, Callable[[list[str]], Any]] = {
            "cat": self.cat,
            "cd": self.cd,
            "exit": self.exit,
            "find": self.find,
            "help": self.help,
            "history": self.history,
            "ls": self.ls,
            "man": self.man,
            "pwd": self.pwd,
            "quit": self.exit,
            "tree": self.tree,
        }

    # Typing

    def loop(self) -> None:
        """Read commands until there are no more."""
        with contextlib.suppress(ImportError):
            import readline

            readline.set_completer_delims(" ")
            readline.set_completer(self.complete)
            readline.parse_and_bind("tab: complete")
        while not self._is_over:
            try:
                line = input(_PROMPT if is_terminal() else "")
            except EOFError:
                break
            except KeyboardInterrupt:
                say()
                continue
            try:
                words = shlex.split(line)
            except ValueError as problem:
                tell(str(problem))
                continue
            if words:
                self._history.append(line)
                self.run(words, as_json=False)

    def run(self, words: list[str], *, as_json: bool) -> bool:
        """Do what a line says and print what comes of it; whether that went well."""
        action = self._commands.get(words[0])
        if action is None:
            tell(f"there is no command {words[0]}; type help to see those that there are")
            return False
        try:
            outcome = action(words[1:])
        except BarnabasError as problem:
            tell(str(problem))
            return False
        if outcome is not None:
            if as_json:
                say(compact_json(_plain(outcome)))
            else:
                for line in _lines(words[0], outcome):
                    say(shown(line))
        return True

    def complete(self, text: str, state: int) -> str | None:
        """For readline: the `state`-th way in which the last word could go on."""
        import readline

        if not readline.get_line_buffer()[: readline.get_begidx()].strip():
            found = [f"{name} " for name in self._commands if name.startswith(text)]
        else:
            found = self.continuations(text)
        return found[state] if state < len(found) else None

    def continuations(self, text: str) -> list[str]:
        """The paths that begin with `text`."""
        above, slash, start = text.rpartition("/")
        node = self._at(self._absolute(above or slash or "."))
        if not is_directory(node):
            return []
        names = [name for name in sorted(node) if name.startswith(start)]
        return [f"{above}{slash}{name}{'/' if is_directory(node[name]) else ' '}" for name in names]

    # Paths

    def _absolute(self, path: str) -> list[str]:
        place: list[str] = [] if path.startswith("/") else list(self._place)
        for part in path.split("/"):
            if part == "..":
                del place[-1:]
            elif part not in ("", "."):
                place.append(part)
        return place

    def _at(self, place: Sequence[str]) -> Any:
        """What is at a place; None if nothing is."""
        node: Any = self._tree
        for name in place:
            if not is_directory(node) or name not in node:
                return None
            node = node[name]
        return node

    def _found(self, pattern: str) -> list[tuple[str, Any]]:
        """The paths that a pattern with `*`, `?`, `[…]` and `{a,b}` matches, each with what is there."""
        found = []
        for each in _alternatives(pattern):
            found += [("/" + "/".join(place), node) for place, node in _matching(self._tree, self._absolute(each))]
        if not found:
            raise BarnabasError(f"{pattern}: no such file or directory")
        return found

    # Commands

    def ls(self, paths: list[str]) -> dict[str, list[str]]:
        """[PATH]…: list what directories hold."""
        found = [each for path in paths or ["."] for each in self._found(path)]
        return {path: sorted(node) if is_directory(node) else [path] for path, node in found}

    def cat(self, paths: list[str]) -> dict[str, Any]:
        """PATH…: show what files hold."""
        if not paths:
            raise BarnabasError("cat: which file?")
        return {path: node for pattern in paths for path, node in self._found(pattern)}

    def cd(self, paths: list[str]) -> None:
        """[PATH]: go to a directory."""
        if len(paths) > 1:
            raise BarnabasError("cd: one directory at a time")
        ((path, node),) = self._found(paths[0] if paths else "/")[:1]
        if not is_directory(node):
            raise BarnabasError(f"{path}: not a directory")
        self._place = self._absolute(path)

    def pwd(self, _: list[str]) -> str:
        """Tell where you are."""
        return "/" + "/".join(self._place)

    def find(self, paths: list[str]) -> list[str]:
        """[PATH]…: list everything below directories."""
        return [below for path in paths or ["."] for top, node in self._found(path) for below in _walk(top, node)]

    def tree(self, paths: list[str]) -> dict[str, Any]:
        """[PATH]…: show everything below directories, with what files hold."""
        return {path: node for pattern in paths or ["."] for path, node in self._found(pattern)}

    def history(self, counts: list[str]) -> list[str]:
        """[COUNT]: list the last lines that were typed."""
        if counts and not counts[0].isdecimal():
            raise BarnabasError(f"history: {counts[0]} is not a number")
        shown = list(enumerate(self._history, 1))
        return [f"{number:5d}  {line}" for number, line in (shown[-int(counts[0]) :] if counts else shown)]

    def help(self, _: list[str]) -> list[str]:
        """List the commands."""
        return [f"{name:8} {command.__doc__}" for name, command in self._commands.items()]

    def man(self, names: list[str]) -> list[str]:
        """COMMAND: tell how a command is used."""
        unknown = [name for name in names if name not in self._commands]
        if unknown:
            raise BarnabasError(f"man: there is no command {unknown[0]}")
        return [f"{name} {self._commands[name].__doc__}" for name in names or ["man"]]

    def exit(self, _: list[str]) -> None:
        """Leave the shell."""
        self._is_over = True


def is_directory(node: Any) -> bool:
    return isinstance(node, dict) and not isinstance(node, Leaf)


def _alternatives(pattern: str) -> Iterator[str]:
    """`a{b,c}` → `ab`, `ac`."""
    braces = _BRACES.search(pattern)
    if braces is None:
        yield pattern
        return
    for choice in braces[1].split(","):
        yield from _alternatives(pattern[: braces.start()] + choice + pattern[braces.end() :])


def _matching(node: Any, patterns: Sequence[str]) -> Iterator[tuple[list[str], Any]]:
    if not patterns:
        yield [], node
    elif is_directory(node):
        # A name that is there as it was typed is meant, whatever characters it has.
        names = (
            [patterns[0]] if patterns[0] in node else [name for name in sorted(node) if fnmatchcase(name, patterns[0])]
        )
        for name in names:
            for below, found in _matching(node[name], patterns[1:]):
                yield [name, *below], found


def _walk(path: str, node: Any) -> Iterator[str]:
    yield path
    if is_directory(node):
        for name in sorted(node):
            yield from _walk(f"{path.rstrip('/')}/{name}", node[name])


def _plain(outcome: Any) -> Any:
    """What a program gets: of one path its content alone."""
    return next(iter(outcome.values())) if isinstance(outcome, dict) and len(outcome) == 1 else outcome


def _lines(command: str, outcome: Any) -> Iterator[str]:
    if isinstance(outcome, str):
        yield outcome
    elif isinstance(outcome, list):
        yield from outcome
    else:
        for number, (path, node) in enumerate(outcome.items()):
            if len(outcome) > 1:
                yield from ([""] if number else [])
                yield f"{path}:"
            yield from {"ls": _columns, "cat": _content, "tree": _branches}[command](node)


def _columns(names: list[str]) -> Iterator[str]:
    """As many columns as the terminal has room for; one name per line for a script."""
    if not is_terminal() or not names:
        yield from names
        return
    width = max(map(len, names)) + 2
    per_line = max(1, shutil.get_terminal_size().columns // width)
    line_count = -(-len(names) // per_line)
    for line in range(line_count):
        yield "".join(name.ljust(width) for name in names[line::line_count]).rstrip()


def _content(node: Any) -> Iterator[str]:
    if is_directory(node):
        raise BarnabasError("it is a directory; try ls or tree")
    yield from _text(node).splitlines() or [""]


def _text(leaf: Any) -> str:
    return json.dumps(leaf, indent=2, ensure_ascii=False) if isinstance(leaf, dict | list) else str(leaf)


def _branches(node: Any, indent: str = "") -> Iterator[str]:
    if not is_directory(node):
        yield _one_line(node)
        return
    for name in sorted(node):
        below = node[name]
        if is_directory(below):
            yield f"{indent}{name}:"
            yield from _branches(below, indent + "  ")
        else:
            yield f"{indent}{name}: {_one_line(below)}"


def _one_line(leaf: Any) -> str:
    return compact_json(leaf) if isinstance(leaf, dict | list) else str(leaf)
