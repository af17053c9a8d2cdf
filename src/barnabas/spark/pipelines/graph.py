"""What a project defines, for people to look at: datasets, the flows into them, and what those read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

TABLE: Final = "table"
VIEW: Final = "materialized view"
TEMPORARY: Final = "temporary view"
PERSISTED: Final = "view"
SINK: Final = "sink"


@dataclass(frozen=True, slots=True)
class Dataset:
    """Something that flows write, or that others read."""

    name: str
    kind: str
    #: The file and line that define it, seen from the project's folder.
    place: str
    #: The format of a sink or of a table that names one.
    format: str | None = None
    #: Of a sink: whether it says that it writes exactly once.
    is_exactly_once: bool = False
    #: Then also the settings of its clients, which may hold passwords, and the topic of its decisions.
    control: tuple[Mapping[str, str], str] | None = field(default=None, repr=False)

    @property
    def is_stored(self) -> bool:
        return self.kind in (TABLE, VIEW)


@dataclass(frozen=True, slots=True)
class Flow:
    """Rows on their way into a dataset."""

    name: str
    target: str
    place: str
    #: Names of datasets and tables, and for other sources their format and what is read of them.
    inputs: tuple[str, ...] = ()
    #: Settings of the clients for the topics that it reads itself, one per cluster. May hold passwords.
    clusters: tuple[Mapping[str, str], ...] = field(default=(), repr=False)


@dataclass(slots=True)
class Graph:
    """All that a project defines, in the order of its files."""

    datasets: dict[str, Dataset] = field(default_factory=dict)
    flows: dict[str, Flow] = field(default_factory=dict)

    def flows_into(self, dataset: str) -> list[Flow]:
        return [flow for flow in self.flows.values() if flow.target == dataset]

    def deliveries(self) -> tuple[list[str], list[str]]:
        """The flows that write what they read exactly once, and those that may write it again after a crash.

        Streams into tables are of the first kind, by Spark's own log of files. A view is computed anew each time.
        """
        once: list[str] = []
        again: list[str] = []
        for flow in self.flows.values():
            target = self.datasets.get(flow.target)
            if target is not None and target.kind in (TABLE, SINK):
                is_once = target.kind == TABLE or target.is_exactly_once
                (once if is_once else again).append(flow.name)
        return once, again

    def clusters_of(self, flow: str) -> list[Mapping[str, str]]:
        """The clusters whose topics a flow reads, itself or through temporary views, which are part of its query."""
        found: list[Mapping[str, str]] = []
        left, seen = [flow], {flow}
        while left:
            current = self.flows.get(left.pop())
            if current is None:
                continue
            found.extend(cluster for cluster in current.clusters if cluster not in found)
            for name in current.inputs:
                dataset = self.datasets.get(name)
                if dataset is not None and dataset.kind == TEMPORARY:
                    new = [each.name for each in self.flows_into(name) if each.name not in seen]
                    seen.update(new)
                    left.extend(new)
        return found


#: Options that say what is read, over all formats that are usual.
_WHAT: Final = ("subscribe", "subscribepattern", "assign", "topic", "path")
_TOPIC_FORMATS: Final = ("barnabas", "kafka")
_CLIENT_PREFIX: Final = "kafka."


def inputs_of(relation: Any) -> tuple[str, ...]:
    """What a plan of Spark Connect reads, once each, in the order in which it says so."""
    found: dict[str, None] = {}
    for source in _sources(relation):
        kind = source.DESCRIPTOR.name
        if kind == "NamedTable":
            found[source.unparsed_identifier] = None
        elif kind == "DataSource":
            options = {name.lower(): value for name, value in source.options.items()}
            what = [options[name] for name in _WHAT if name in options] or list(source.paths)
            found[f"{source.format}: {', '.join(what)}" if what else source.format] = None
        else:
            found.update(dict.fromkeys(_read_in_sql(source.query)))
    return tuple(found)


def clusters_in(relation: Any) -> tuple[Mapping[str, str], ...]:
    """The settings of clients that a plan of Spark Connect reads topics with, once each."""
    found: list[Mapping[str, str]] = []
    for source in _sources(relation):
        if source.DESCRIPTOR.name == "DataSource" and source.format.lower() in _TOPIC_FORMATS:
            options = {name.lower(): value for name, value in source.options.items()}
            settings = {
                name.removeprefix(_CLIENT_PREFIX): value
                for name, value in sorted(options.items())
                if name.startswith(_CLIENT_PREFIX)
            }
            if settings not in found:
                found.append(settings)
    return tuple(found)


def _sources(message: Any) -> Iterator[Any]:
    """The parts of a plan that read something: tables by name, data sources, SQL."""
    kind = message.DESCRIPTOR.name
    if kind in ("NamedTable", "DataSource", "SQL"):
        yield message
    if kind in ("NamedTable", "DataSource"):
        return
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None:
            continue
        # A map or a list behaves like neither a message nor anything else with ListFields.
        for each in [value] if hasattr(value, "ListFields") else list(value):
            if hasattr(each, "ListFields"):
                yield from _sources(each)


# SQL files are understood by Spark alone; to show what is in them, their first words are enough.
_NAME: Final = r"(?P<name>(?:`[^`]+`|[\w.])+)"
_CREATE: Final = re.compile(
    r"\bCREATE\s+(?:OR\s+REPLACE\s+)?(?P<kind>STREAMING\s+TABLE|MATERIALIZED\s+VIEW|(?:TEMP(?:ORARY)?\s+)?VIEW|FLOW)\s+"
    rf"(?:IF\s+NOT\s+EXISTS\s+)?{_NAME}",
    re.IGNORECASE,
)
_KINDS: Final = {
    "STREAMING TABLE": TABLE,
    "MATERIALIZED VIEW": VIEW,
    "TEMPORARY VIEW": TEMPORARY,
    "TEMP VIEW": TEMPORARY,
    "VIEW": PERSISTED,
}
_TARGET: Final = re.compile(rf"\bINTO\s+(?:TABLE\s+)?{_NAME}", re.IGNORECASE)
_USING: Final = re.compile(rf"\bUSING\s+{_NAME}", re.IGNORECASE)
_READ: Final = re.compile(rf"\b(?:FROM|JOIN)\s+(?:STREAM\s*\(?\s*)?{_NAME}", re.IGNORECASE)
_WITH: Final = re.compile(rf"(?:\bWITH|,)\s+{_NAME}\s+AS\s*\(", re.IGNORECASE)
_COMMENTS: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)


def sql_graph(text: str, file: str, graph: Graph) -> None:
    """What a SQL file defines, as far as its shape tells."""
    # Blanks of the same length, so that lines can still be counted; strings go as well, they may hold anything.
    bare = _COMMENTS.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    for start in _CREATE.finditer(bare):
        statement = bare[start.start() :].partition(";")[0]
        name, place = _bare(start["name"]), f"{file}:{bare.count(chr(10), 0, start.start()) + 1}"
        kind = " ".join(start["kind"].upper().split())
        target = name
        if kind == "FLOW":
            into = _TARGET.search(statement)
            target = _bare(into["name"]) if into else name
        else:
            using = _USING.search(statement)
            graph.datasets[name] = Dataset(name, _KINDS[kind], place, _bare(using["name"]) if using else None)
        inputs = _read_in_sql(statement)
        if inputs or kind != "STREAMING TABLE":
            graph.flows[name] = Flow(name, target, place, inputs)


def _read_in_sql(statement: str) -> tuple[str, ...]:
    bare = _COMMENTS.sub(" ", statement)
    own = {_bare(found["name"]) for found in _WITH.finditer(bare)}
    names = (_bare(found["name"]) for found in _READ.finditer(bare))
    return tuple(dict.fromkeys(name for name in names if name not in own))


def _bare(name: str) -> str:
    return name.replace("`", "")
