"""The examples in the documents run, and what the documents name is there."""

from __future__ import annotations

import ast
import doctest
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src" / "barnabas"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
MODULES = sorted(path for path in SOURCES.rglob("*.py*") if path.suffix in (".py", ".pyx"))
CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[\w./-]+\.(?:py|pyx|pxd|md)|(?:[\w.-]+/)+")
STEP = re.compile(r"\d+\. `([\w./]+):([\w.]+)`")


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "document",
    [
        *("README.md", "docs/clients.md", "docs/library.md", "docs/moving-over.md"),
        *("docs/operating.md", "docs/pipelines.md", "docs/raft.md", "docs/security.md", "docs/testing.md"),
    ],
)
def test_examples_run(document: str) -> None:
    failed, tried = doctest.testfile(str(ROOT / document), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert tried > 0
    assert failed == 0


def test_the_first_example_needs_nothing_that_is_not_installed_by_default() -> None:
    first = text_of("README.md").partition("```python\n")[2].partition("```")[0]
    code = f"import sys, doctest; sys.modules['pyarrow'] = None\nexample = {first!r}\n" + (
        "test = doctest.DocTestParser().get_doctest(example, {}, 'README', 'README.md', 0)\n"
        "sys.exit(doctest.DocTestRunner().run(test).failed + (not test.examples))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


# The table of files


class FileRow:
    """One row: paths and folders in the first cell, and what the second says of them."""

    def __init__(self, line: str) -> None:
        where, _, what = line.strip("| ").partition(" | ")
        self.paths: list[Path] = []
        self.folders: list[Path] = []
        folder = SOURCES
        for token in CODE.findall(where):
            if token.endswith("/"):
                self.folders.append(SOURCES / token)
                continue
            path = SOURCES / token if "/" in token else folder / token
            folder = path.parent
            self.paths.append(path)
        self.covers_all = "one file per" in what
        self.stems = [word for word in CODE.findall(what) if re.fullmatch(r"_?[a-z0-9]\w*", word)]

    def names(self, module: Path) -> bool:
        if module in self.paths:
            return True
        return module.parent in self.folders and (self.covers_all or module.stem in self.stems)


def file_rows() -> list[FileRow]:
    table = text_of("docs/architecture.md").partition("## The files")[2].partition("\n## ")[0]
    return [FileRow(line) for line in table.splitlines() if line.startswith("| `")]


def test_the_table_of_files_names_every_module() -> None:
    rows = file_rows()
    missing = [
        module.relative_to(SOURCES).as_posix()
        for module in MODULES
        if module.name != "__init__.py" and not any(row.names(module) for row in rows)
    ]
    assert not missing


def test_what_the_table_of_files_names_exists() -> None:
    gone: list[object] = []
    for row in file_rows():
        gone += [path for path in row.paths if not path.is_file()]
        gone += [folder for folder in row.folders if not folder.is_dir()]
        if row.folders:
            known = {path.stem for folder in row.folders for path in folder.iterdir()}
            gone += [stem for stem in row.stems if stem not in known]
    assert not gone


# Paths and names in all documents


def named_paths(text: str) -> Iterator[str]:
    for code in CODE.findall(text):
        if PATH.fullmatch(code) and not code.startswith("/"):
            yield code


def exists(named: str) -> bool:
    """As it stands, below the sources, or as the end of a path that is there: documents shorten what is clear."""
    if any((place / named).exists() for place in (ROOT, ROOT / "docs", SOURCES)):
        return True
    if named.endswith("/"):
        return False
    return any(path.as_posix().endswith("/" + named) for path in [*MODULES, *DOCUMENTS])


@pytest.mark.parametrize(
    "document", ["docs/architecture.md", "docs/glossary.md", "docs/kafka-map.md", "CONTRIBUTING.md"]
)
def test_paths_in_documents_exist(document: str) -> None:
    assert not [named for named in named_paths(text_of(document)) if not exists(named)]


def test_paths_in_comments_exist() -> None:
    found = [(path.name, named) for path in MODULES for named in named_paths(path.read_text(encoding="utf-8"))]
    ours = [each for each in found if each[1].endswith(".py") and "/" in each[1]]
    assert ours
    assert not [each for each in ours if not exists(each[1])]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8"))
    assert not [link for link in links if "://" not in link and not (document.parent / link).exists()]


def test_classes_in_the_architecture_have_what_is_said_of_them() -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in [*MODULES, *SOURCES.rglob("*.pxd")])
    named = [code.split(".") for code in CODE.findall(text_of("docs/architecture.md"))]
    for words in named:
        if len(words) == 2 and re.fullmatch(r"[A-Z]\w+", words[0]) and re.fullmatch(r"\w+", words[1]):
            assert re.search(rf"\bclass {words[0]}\b", sources), words
            assert re.search(rf"(def |[\w\]] )\b{words[1]}\b|\b{words[1]}\b *[:=]|\"{words[1]}\"", sources), words


# The walks


def steps() -> list[tuple[str, str]]:
    return [(match[1], match[2]) for match in map(STEP.match, text_of("docs/walks.md").splitlines()) if match]


def functions_of(path: Path) -> set[str]:
    """Functions and methods, the latter as `Class.method`."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        found: set[str] = set()
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(node.name)
            elif isinstance(node, ast.ClassDef):
                within = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
                found |= {f"{node.name}.{each.name}" for each in within}
        return found
    found, owner = set(), ""
    for line in source.splitlines():
        if match := re.match(r"cdef class (\w+)", line):
            owner = match[1] + "."
        elif match := re.match(r"( *)(?:def|cdef|cpdef) [^=]*?(\w+)\(", line):
            found.add((owner if match[1] else "") + match[2])
    return found


def test_there_are_three_walks() -> None:
    headings = re.findall(r"^## (.+)$", text_of("docs/walks.md"), re.MULTILINE)
    assert headings == ["A produced record", "A fetched record", "A CreateTopics request"]
    assert len(steps()) > 40


@pytest.mark.parametrize(("path", "function"), sorted(set(steps())))
def test_the_steps_of_the_walks_exist(path: str, function: str) -> None:
    assert (SOURCES / path).is_file()
    assert function in functions_of(SOURCES / path)


# The map from Kafka


def map_rows() -> list[list[str]]:
    lines = text_of("docs/kafka-map.md").splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| `")]


def test_the_map_says_where_each_class_of_kafka_is() -> None:
    for row in map_rows():
        assert len(row) == 3, row
        files = list(named_paths(row[1]))
        assert files or row[1] == "not yet", row
        assert all((SOURCES / each).exists() for each in files), row
        assert row[2], row


def test_the_map_has_the_classes_that_people_know() -> None:
    named = {name for row in map_rows() for name in CODE.findall(row[0])}
    known = """
        KafkaProducer RecordAccumulator BufferPool ProducerBatch Sender NetworkClient InFlightRequests Selector
        KafkaChannel NetworkReceive TransactionManager ProducerMetadata KafkaConsumer Fetcher ConsumerCoordinator
        SocketServer Acceptor Processor RequestChannel KafkaRequestHandler KafkaApis ReplicaManager Partition
        UnifiedLog LogSegment LogManager LogCleaner ProducerStateManager DelayedOperationPurgatory TimingWheel
        GroupCoordinator TransactionCoordinator KafkaController QuorumController KafkaRaftClient MetadataCache
        QuorumState LeaderState VoterSet RaftLog RaftMessageQueue
        MetadataLoader BrokerLifecycleManager FetchSession ClientQuotaManager KafkaConfig ConfigDef Metrics
    """
    assert not set(known.split()) - named


def test_the_index_lists_every_document() -> None:
    index = text_of("docs/README.md")
    pages = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))
    assert not [page for page in pages if page != "README.md" and f"({page})" not in index]
