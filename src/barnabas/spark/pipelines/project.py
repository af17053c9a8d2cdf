"""A pipeline project: a folder with `spark-pipeline.yml` in it, and the files that define flows and tables.

The file is that of Spark's own `spark-pipelines`, and means the same; `delivery` is a key of ours. What is wrong with
it is told before Spark is started, which takes seconds, and in words: the file, the key, what was found there and what
to write instead.
"""

from __future__ import annotations

import difflib
import glob
import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from barnabas.base.errors import BarnabasError
from barnabas.base.extras import how_to_install

SPEC_NAMES: Final = ("spark-pipeline.yml", "spark-pipeline.yaml")
_KEYS: Final = ("name", "storage", "catalog", "database", "schema", "configuration", "libraries", "delivery")
_DELIVERIES: Final = ("at-least-once", "exactly-once")
_SUFFIXES: Final = (".py", ".sql")
_WAREHOUSE: Final = "spark.sql.warehouse.dir"
_LOCAL: Final = "file://"
#: How to get all that pipelines need.
INSTALL: Final = how_to_install("spark")


class ProjectError(BarnabasError):
    """Something is wrong with a project; the message says where and what to do."""


@dataclass(frozen=True, slots=True)
class Project:
    """A project whose specification was found to be sound."""

    name: str
    folder: Path
    #: The specification itself.
    spec: Path
    #: Where flows keep their checkpoints, as a URI.
    storage: str
    #: The files that define the pipeline, in the order in which they are read.
    definitions: tuple[Path, ...]
    configuration: Mapping[str, str]
    catalog: str | None = None
    database: str | None = None
    #: How sinks of format barnabas write that say nothing else: at-least-once or exactly-once.
    delivery: str | None = None

    @property
    def tables(self) -> str:
        """Where tables lie that say nothing else, as a URI: `spark.sql.warehouse.dir`."""
        return self.configuration.get(_WAREHOUSE) or address_of(self.folder / "tables")

    @property
    def working_folder(self) -> Path:
        """What a run leaves behind that is nobody's business: the catalog of tables, Spark's log, the lock."""
        return self.folder / ".pipeline"

    def short(self, name: str) -> str:
        """What people call a flow or a table: without the catalog and database that everything here is in."""
        return name.removeprefix(f"{self.catalog or 'spark_catalog'}.{self.database or 'default'}.")


def address_of(folder: Path) -> str:
    """As Spark takes it: to the letter, so that spaces must stay spaces."""
    return f"{_LOCAL}{folder.as_posix()}"


def folder_of(address: str) -> Path:
    """The folder that `address_of` was asked for."""
    return Path(address.removeprefix(_LOCAL))


def load_project(folder: str | Path) -> Project:
    """Read and check a project. `folder` is the one that has the specification, or the specification itself."""
    spec = _spec_of(Path(folder))
    check_path(spec.parent)
    return _Reading(spec, _parsed(spec)).project()


def check_path(folder: Path) -> None:
    """Raise if a project cannot lie there: `folder` is its absolute path."""
    check_text(str(folder))
    if os.pathsep in str(folder):
        raise ProjectError(
            f"{folder}: a project cannot lie below a folder that has a {os.pathsep} in its name, where Java splits "
            "paths: choose another place"
        )


def check_text(text: str) -> None:
    """Raise if it is none. What the system hands us may be in another encoding than UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as failure:
        raise ProjectError(f"{text!a} is not UTF-8 text: choose another name") from failure


def _spec_of(place: Path) -> Path:
    if place.is_file():
        return _absolute(place)
    if not place.exists():
        raise ProjectError(f"{place} does not exist: `barnabas pipeline init {place}` writes an example project there")
    found = [place / name for name in SPEC_NAMES if (place / name).is_file()]
    if not found:
        raise ProjectError(
            f"{place} is no pipeline project: there is no {SPEC_NAMES[0]} in it "
            "(`barnabas pipeline init NEW_FOLDER` writes an example)"
        )
    if len(found) > 1:
        raise ProjectError(f"{place} has both {SPEC_NAMES[0]} and {SPEC_NAMES[1]}: remove one of them")
    return _absolute(found[0])


def _absolute(path: Path) -> Path:
    """Without `..`: the folder that it leads out of may be gone tomorrow. After a link it leads elsewhere than names
    say."""
    named = Path(os.path.abspath(path))
    return named if named.exists() and named.samefile(path) else path.resolve()


def _parsed(spec: Path) -> Any:
    try:
        yaml: Any = importlib.import_module("yaml")
    except ImportError as failure:
        raise ProjectError(f"pipelines need PyYAML to read {spec.name}: {INSTALL}") from failure
    scalars: list[Any] = []
    try:
        return _loaded(yaml.SafeLoader(spec.read_text(encoding="utf-8")), scalars)
    except UnicodeDecodeError as failure:
        raise ProjectError(f"{spec} is not UTF-8 text: {failure.reason} at byte {failure.start}") from failure
    except yaml.YAMLError as failure:
        mark = getattr(failure, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        problem = getattr(failure, "problem", None) or str(failure).replace("\n", " ")
        raise ProjectError(f"{spec}{line}: this is not YAML: {problem}") from failure
    except RecursionError as failure:
        raise ProjectError(f"{spec}: things in it lie too deep in each other") from failure
    except (ValueError, LookupError, AttributeError) as failure:
        # What PyYAML lets through, of 2024-13-45 say, which it takes for a date: the last that it looked at.
        last = scalars[-1]
        raise ProjectError(
            f"{spec}, line {last.start_mark.line + 1}: {last.value[:50]!r} is no {last.tag.rpartition(':')[2]}: "
            "write it in quotes if it is text"
        ) from failure


def _loaded(loader: Any, scalars: list[Any]) -> Any:
    """What `yaml.safe_load` returns; `scalars` gets the places of the texts that values are made of."""
    construct = loader.construct_scalar

    def remembered(node: Any) -> Any:
        scalars.append(node)
        return construct(node)

    loader.construct_scalar = remembered
    return loader.get_single_data()


class _Reading:
    """One specification, key by key."""

    def __init__(self, spec: Path, content: Any) -> None:
        self._spec = spec
        if not isinstance(content, dict):
            raise self._wrong("it must be a mapping that has at least `name`, `storage` and `libraries`")
        self._content = content

    def project(self) -> Project:
        self._check_keys()
        return Project(
            name=self._text("name"),
            folder=self._spec.parent,
            spec=self._spec,
            storage=self._storage(),
            definitions=self._definitions(),
            configuration=self._configuration(),
            catalog=self._optional_text("catalog"),
            database=self._optional_text("database") or self._optional_text("schema"),
            delivery=self._delivery(),
        )

    def _wrong(self, problem: str) -> ProjectError:
        return ProjectError(f"{self._spec}: {problem}")

    def _check_keys(self) -> None:
        for key in self._content:
            if key not in _KEYS:
                near = difflib.get_close_matches(str(key), _KEYS, n=1)
                meant = f"did you mean `{near[0]}`?" if near else f"known are {', '.join(_KEYS)}"
                raise self._wrong(f"unknown key `{key}`: {meant}")
        if "database" in self._content and "schema" in self._content:
            raise self._wrong("`database` and `schema` mean the same: keep one of them")

    def _text(self, key: str) -> str:
        value = self._optional_text(key)
        if not value:
            example = {"name": "name: clickstream", "storage": "storage: storage"}[key]
            raise self._wrong(f"`{key}` is missing: write for example `{example}`")
        return value

    def _optional_text(self, key: str) -> str | None:
        value = self._content.get(key)
        if value is not None and not isinstance(value, str):
            raise self._wrong(f"`{key}` must be text, and {value!r} is not: write it in quotes")
        return value

    def _delivery(self) -> str | None:
        delivery = self._optional_text("delivery")
        if delivery is not None and delivery not in _DELIVERIES:
            raise self._wrong(f"`delivery: {delivery}`: write {' or '.join(_DELIVERIES)}")
        return delivery

    def _storage(self) -> str:
        """As a URI. A path counts from the folder of the specification, so that projects can be shared."""
        storage = self._text("storage")
        try:
            parts = urlsplit(storage)
        except ValueError as failure:
            raise self._wrong(f"`storage: {storage}` is no address: {failure}") from failure
        # A single letter is a drive of Windows.
        if len(parts.scheme) < 2:
            return address_of((self._spec.parent / storage).absolute())
        if parts.scheme == "file" and (parts.netloc or not parts.path.startswith("/")):
            raise self._wrong(
                f"`storage: {storage}` is no absolute path: write `file:///…`, or a path alone, which counts from "
                f"{self._spec.parent}"
            )
        return storage

    def _configuration(self) -> dict[str, str]:
        configuration = self._content.get("configuration") or {}
        if not isinstance(configuration, dict):
            raise self._wrong(
                '`configuration` must be a mapping of Spark settings, as in `spark.sql.ansi.enabled: "true"`'
            )
        for key, value in configuration.items():
            if not isinstance(key, str):
                raise self._wrong(f"`configuration` has the key {key!r}, which is no text")
            if value is None:
                raise self._wrong(f"`configuration`: {key} has no value: write one in quotes, or remove it")
            if not isinstance(value, str):
                shown = str(value).lower() if isinstance(value, bool) else value
                raise self._wrong(f'`configuration`: the value of {key} must be text: write `{key}: "{shown}"`')
        return configuration

    def _definitions(self) -> tuple[Path, ...]:
        libraries = self._content.get("libraries")
        if not libraries:
            raise self._wrong("`libraries` is missing: it says which files define the pipeline, as in " + _LIBRARIES)
        if not isinstance(libraries, list):
            raise self._wrong("`libraries` must be a list, as in " + _LIBRARIES)
        found: dict[Path, None] = {}
        for entry in libraries:
            for file in self._files(self._pattern(entry)):
                found[file] = None
        return tuple(found)

    def _pattern(self, entry: Any) -> str:
        if not (isinstance(entry, dict) and set(entry) == {"glob"} and isinstance(entry["glob"], dict)):
            raise self._wrong(f"`libraries` has the entry {entry!r}: write {_LIBRARIES}")
        pattern = entry["glob"].get("include")
        if set(entry["glob"]) != {"include"} or not isinstance(pattern, str):
            raise self._wrong(f"`libraries` has the entry {entry!r}: write {_LIBRARIES}")
        folder = pattern.removesuffix("/**")
        if glob.has_magic(folder) or not Path(pattern).parts:
            raise self._wrong(f"`include: {pattern}`: Spark takes a file, or a folder with all below it: `folder/**`")
        if Path(pattern).is_absolute():
            raise self._wrong(f"`include: {pattern}`: write the path as it is seen from {self._spec.parent}")
        return pattern

    def _files(self, pattern: str) -> list[Path]:
        place = self._spec.parent / pattern.removesuffix("/**")
        # Sorted, since the order of a directory differs from machine to machine.
        matching = sorted(
            path
            for path in self._spec.parent.glob(pattern + "/*" if pattern.endswith("/**") else pattern)
            if path.is_file() and not any(map(_is_left_behind, path.relative_to(place).parts))
        )
        if not matching:
            raise self._wrong(f"`include: {pattern}` matches no file in {self._spec.parent}")
        for path in matching:
            if path.suffix not in _SUFFIXES:
                raise self._wrong(
                    f"`include: {pattern}` matches {path.relative_to(self._spec.parent)}: only .py and .sql files "
                    "define pipelines, keep others elsewhere"
                )
        return matching


def _is_left_behind(name: str) -> bool:
    """Whether a file or folder of this name is Python's, or an editor's."""
    return name == "__pycache__" or name.startswith(".")


_LIBRARIES: Final = "`libraries: [{glob: {include: transformations/**}}]`"
