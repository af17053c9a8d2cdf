"""Looks through all that tests make our code tell, for the secrets that were used: one that shows fails its test.

Looked at are log lines of this process, what tools and other processes of ours print, what a test prints, and the log
files of nodes. Looked for are the passwords that tests use, keys and tokens that are made while they run, private keys
and signed tokens of any kind. A test that is about showing a secret says so with the mark `shows_secrets`.

A secret that a test needs contains `MARKER`, or is named in `PASSWORDS`.
"""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import threading
from base64 import b64encode
from collections import deque
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

#: With a character that no random id has: those are shown, and three letters come up in one of ten thousand.
MARKER: Final = "7Qx~"
#: Those of documents and of older tests, which say something to readers.
PASSWORDS: Final = (
    MARKER,
    "swordfish",
    "geheim-",
    "node-secret",
    "admin-secret",
    "ann-secret",
    "alice-secret",
    "for-tests-only",
)
_PATTERNS: Final = (
    re.compile("|".join(map(re.escape, PASSWORDS))),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    #: A JWT: header, claims and signature.
    re.compile(r"eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}"),
)
#: Of secrets that were made while tests run, the newest; each in the forms in which it may be shown.
_MADE: Final[deque[str]] = deque(maxlen=400)
_SHOWN_BYTES: Final = 60


class Found:
    """What was found since the last look. Nodes in this process log from threads of their own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: list[str] = []

    def look_at(self, text: str | bytes | None, where: str) -> None:
        if not text:
            return
        told = text.decode(errors="replace") if isinstance(text, bytes) else text
        for place in places_in(told):
            with self._lock:
                self._places.append(f"{where}: {place}")

    def take(self) -> list[str]:
        with self._lock:
            taken, self._places = self._places, []
            return taken


FOUND: Final = Found()


def places_in(text: str) -> Iterator[str]:
    """Where a secret begins, by the words before it; the secret itself is not told again."""
    starts = [found.start() for pattern in _PATTERNS if (found := pattern.search(text)) is not None]
    starts += [place for each in list(_MADE) if (place := text.find(each)) >= 0]
    for start in starts:
        yield f"…{text[max(0, start - _SHOWN_BYTES) : start]!r} and then a secret"


def note_secret(value: bytes) -> None:
    """Bytes that nobody should be shown, in any form."""
    _MADE.extend((b64encode(value).decode(), value.hex(), repr(value)[2:-1]))


class _Listener(logging.Handler):
    """Hears every line that is logged."""

    def emit(self, record: logging.LogRecord) -> None:
        told = record.getMessage()
        if record.exc_info:
            told += logging.Formatter().formatException(record.exc_info)
        FOUND.look_at(told, f"log of {record.name}")


def _watch_what_is_made() -> None:
    from barnabas.base.sasl.scram import ScramCredential

    of_salted = ScramCredential.of_salted.__func__  # type: ignore[attr-defined]

    def noted(cls: type[ScramCredential], salted: bytes, *rest: Any) -> ScramCredential:
        made: ScramCredential = of_salted(cls, salted, *rest)
        for each in (salted, made.stored_key, made.server_key):
            note_secret(each)
        return made

    ScramCredential.of_salted = classmethod(noted)  # type: ignore[assignment,method-assign]


def _watch_tokens() -> None:
    """In every module that has imported the function by its name."""
    from barnabas.base.sasl import tokens

    token_hmac = tokens.token_hmac

    def noted(secret_key: str, token_id: str) -> bytes:
        made = token_hmac(secret_key, token_id)
        note_secret(made)
        return made

    for module in list(sys.modules.values()):
        if (
            getattr(module, "__name__", "").startswith("barnabas.")
            and getattr(module, "token_hmac", None) is token_hmac
        ):
            module.token_hmac = noted  # type: ignore[attr-defined]


def _watch_processes() -> None:
    run = subprocess.run

    def noted(*arguments: Any, **options: Any) -> Any:
        done = run(*arguments, **options)
        words = arguments[0] if arguments else options.get("args", ())
        if "barnabas" in (words if isinstance(words, str) else " ".join(map(str, words))):
            FOUND.look_at(done.stdout, "output of a process")
            FOUND.look_at(done.stderr, "errors of a process")
        return done

    subprocess.run = noted


class LogFiles:
    """The log files of nodes below the folder of a run, each read on from where it was read last."""

    def __init__(self) -> None:
        self._read: dict[Path, int] = {}

    def look(self, folder: Path) -> None:
        for pattern in ("*/*.log", "*/*/*.log", "*/*/logs*/*.log"):
            for file in folder.glob(pattern):
                # What a Kafka tells is not ours; a partition's log is no log of events.
                if file.name != "kafka.log" and not file.stem.isdigit() and file.is_file():
                    self._look_at(file)

    def _look_at(self, file: Path) -> None:
        start = self._read.get(file, 0)
        with file.open("rb") as opened:
            opened.seek(start)
            told = opened.read()
        self._read[file] = start + len(told)
        FOUND.look_at(told, file.name)


_LOG_FILES: Final = LogFiles()


# The plug-in


def pytest_configure() -> None:
    logging.getLogger("barnabas").addHandler(_Listener())
    _watch_what_is_made()
    _watch_processes()


def pytest_collection_finish() -> None:
    _watch_tokens()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.passed:
        for name, content in report.sections:
            FOUND.look_at(content, name)
    places = FOUND.take()
    if places and report.passed and item.get_closest_marker("shows_secrets") is None:
        report.outcome = "failed"
        report.longrepr = "\n".join(["a secret was shown:", *places[:10]])
    return report


@pytest.fixture(scope="module", autouse=True)
def _no_secret_in_log_files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What nodes tell that end with the module, or that are shared by several."""
    yield
    _LOG_FILES.look(tmp_path_factory.getbasetemp())
    places = FOUND.take()
    assert not places, f"a secret was shown: {places[:10]}"
