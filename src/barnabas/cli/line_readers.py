"""From lines of standard input to records: what `console-producer` sends."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, Final, NamedTuple, Protocol, cast

from barnabas.base.errors import BarnabasError, SettingsError
from barnabas.base.settings import Plugin
from barnabas.cli.output import say
from barnabas.cli.stopping import Stop

_Headers = tuple[tuple[str, bytes | None], ...]
_JAVA_NAMES: Final = ("org.apache.kafka.tools.LineMessageReader", "kafka.tools.ConsoleProducer$LineMessageReader")
_LINE: Final = "line"
_BUFFER_BYTES: Final = 256 * 1024


class ReadRecord(NamedTuple):
    """A record to be sent; what is None is left to the producer."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: _Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class RecordReader(Protocol):
    """What `--line-reader` may name: a class without arguments whose objects have these. `close()` is called if there.

    The settings are those of `--reader-property` and `--reader-config`, and `topic`.
    """

    def configure(self, settings: Mapping[str, str]) -> None: ...

    def read_records(self, stream: BinaryIO) -> Iterator[ReadRecord]: ...


class StoppableInput(io.RawIOBase):
    """What is read from a descriptor, and ends when somebody wants the tool to end."""

    def __init__(self, descriptor: int, stop: Stop) -> None:
        #: Whether it ended before its end: then the last line may be half a line.
        self.is_cut = False
        self._descriptor = descriptor
        self._stop = stop

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._stop.wait_for_input(self._descriptor):
            self.is_cut = True
            return 0
        return os.readv(self._descriptor, [buffer])


class StandardInput:
    """Standard input in bytes."""

    def __init__(self, stop: Stop) -> None:
        self._raw: StoppableInput | None = None
        self.stream: BinaryIO = io.BytesIO()
        if sys.stdin is None:
            return
        try:
            self._raw = StoppableInput(sys.stdin.fileno(), stop)
        except (OSError, ValueError):
            self.stream = sys.stdin.buffer
        else:
            self.stream = cast(BinaryIO, io.BufferedReader(self._raw, _BUFFER_BYTES))

    @property
    def is_cut(self) -> bool:
        """Whether reading was broken off, perhaps in the middle of a line."""
        return self._raw is not None and self._raw.is_cut


def record_reader(name: str, settings: Mapping[str, str]) -> RecordReader:
    """The reader of this name: ours, which stands in for Kafka's, or a class given by its dotted path."""
    plugin = Plugin(_LINE if name in _JAVA_NAMES else name)
    try:
        reader: RecordReader = plugin.resolve({_LINE: LineReader})()
    except TypeError as problem:
        raise SettingsError(f"--line-reader: {name} cannot be made without arguments: {problem}") from None
    if not hasattr(reader, "configure") or not hasattr(reader, "read_records"):
        raise SettingsError(f"--line-reader: {name} must have configure(settings) and read_records(stream)")
    reader.configure(settings)
    return reader


class LineReader:
    """Each line is a record: its value, or headers, key and value with separators between them.

    Text is taken as the bytes that it is; it need not be UTF-8, except for the names of headers.
    """

    def configure(self, settings: Mapping[str, str]) -> None:
        self._topic = settings["topic"]
        self._has_key = _is_true(settings, "parse.key")
        self._has_headers = _is_true(settings, "parse.headers")
        self._ignores_errors = _is_true(settings, "ignore.error")
        self._key_separator = settings.get("key.separator", "\t").encode()
        self._headers_delimiter = settings.get("headers.delimiter", "\t").encode()
        self._header_key_separator = settings.get("headers.key.separator", ":").encode()
        headers_separator = settings.get("headers.separator", ",")
        null_marker = settings.get("null.marker")
        self._null_marker = None if null_marker is None else null_marker.encode()
        _check_separators(settings)
        self._split_headers = _splitter(headers_separator)
        self._is_plain = not self._has_key and not self._has_headers and null_marker is None

    def read_records(self, stream: BinaryIO) -> Iterator[ReadRecord]:
        topic, is_plain = self._topic, self._is_plain
        for number, line in enumerate(_lines(stream), 1):
            yield ReadRecord(topic, line) if is_plain else self.parse(line, number)

    def parse(self, line: bytes, number: int) -> ReadRecord:
        """The record in a line; `BarnabasError` says what is wrong with it."""
        rest = line
        headers: _Headers = ()
        key = None
        if self._has_headers:
            text, found, behind = rest.partition(self._headers_delimiter)
            if found:
                rest = behind
                headers = () if text == self._null_marker else self._headers(text, number)
            elif not self._ignores_errors:
                raise _missing("headers.delimiter", self._headers_delimiter, line, number)
        if self._has_key:
            text, found, behind = rest.partition(self._key_separator)
            if found:
                rest = behind
                key = self._or_null(text)
            elif not self._ignores_errors:
                raise _missing("key.separator", self._key_separator, line, number)
        return ReadRecord(self._topic, self._or_null(rest), key, headers)

    def _or_null(self, text: bytes) -> bytes | None:
        return None if text == self._null_marker else text

    def _headers(self, text: bytes, number: int) -> _Headers:
        return tuple(self._header(pair, number) for pair in self._split_headers(text))

    def _header(self, pair: bytes, number: int) -> tuple[str, bytes | None]:
        name, found, value = pair.partition(self._header_key_separator)
        if not found and not self._ignores_errors:
            raise _missing("headers.key.separator", self._header_key_separator, pair, number)
        if name == self._null_marker and found:
            raise BarnabasError(f"line {number}: the name of a header cannot be null, as {name.decode()!r} says")
        return name.decode("utf-8", "replace"), self._or_null(value) if found else None


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """As Java splits them, after \\n, \\r or both. At a terminal each is asked for."""
    has_prompt = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    while True:
        if has_prompt:
            say(">", nl=False)
        line = stream.readline()
        if not line:
            if has_prompt:
                say()
            return
        if b"\r" in line:
            yield from line.splitlines()
        else:
            yield line.removesuffix(b"\n")


def _is_true(settings: Mapping[str, str], name: str) -> bool:
    return settings.get(name, "").strip().lower() == "true"


def _check_separators(settings: Mapping[str, str]) -> None:
    """What separates must be told apart."""
    delimiter = settings.get("headers.delimiter", "\t")
    separator = settings.get("headers.separator", ",")
    key_separator = settings.get("headers.key.separator", ":")
    null_marker = settings.get("null.marker")
    pairs = [
        ("headers.delimiter", delimiter, "headers.separator", separator),
        ("headers.delimiter", delimiter, "headers.key.separator", key_separator),
        ("headers.separator", separator, "headers.key.separator", key_separator),
        ("null.marker", null_marker, "key.separator", settings.get("key.separator", "\t")),
        ("null.marker", null_marker, "headers.separator", separator),
        ("null.marker", null_marker, "headers.delimiter", delimiter),
        ("null.marker", null_marker, "headers.key.separator", key_separator),
    ]
    for one, one_value, other, other_value in pairs:
        if one_value == other_value:
            raise SettingsError(f"{one} and {other} are both {one_value!r}: lines could not be read with these")
    for name in ("key.separator", "headers.delimiter", "headers.separator", "headers.key.separator"):
        if settings.get(name) == "":
            raise SettingsError(f"{name} is empty: lines could not be read with that")


def _splitter(separator: str) -> Callable[[bytes], list[bytes]]:
    """Splits headers as Java's `Pattern.split` does: by an expression, and without empty ends."""
    try:
        pattern = re.compile(separator.encode())
    except re.error as problem:
        raise SettingsError(f"headers.separator: {separator!r} is not a regular expression: {problem}") from None
    if pattern.match(b"") is not None:
        # An expression that can match nothing, as '|' does, was not meant as one.
        pattern = re.compile(re.escape(separator.encode()))

    def split(text: bytes) -> list[bytes]:
        parts = pattern.split(text)
        while len(parts) > 1 and not parts[-1]:
            parts.pop()
        return parts

    return split


def _missing(setting: str, separator: bytes, text: bytes, number: int) -> BarnabasError:
    return BarnabasError(
        f"line {number}: there is no {setting} {separator.decode('utf-8', 'replace')!r} in "
        f"{text.decode('utf-8', 'replace')!r}; correct the line, or send it as it is with ignore.error=true"
    )
