"""How `console-consumer` shows a record: Kafka's formatters by their names, and JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol

from barnabas.base.errors import BarnabasError, RemoteProtocolError, SettingsError
from barnabas.base.foreign_text import escaped_lines
from barnabas.base.log_context import logger
from barnabas.base.settings import Plugin
from barnabas.cli.output import compact_json
from barnabas.records import TimestampType

if TYPE_CHECKING:
    from barnabas import ConsumerRecord
    from barnabas.client.serialization import Deserialize
    from barnabas.wire.stored.forms import KeyMessage, ValueMessage

_log: Final = logger(__name__)

_TIMESTAMP_NAMES: Final = {TimestampType.CREATE_TIME: "CreateTime", TimestampType.LOG_APPEND_TIME: "LogAppendTime"}
_UNKNOWN: Final = "NOT_PRESENT"
_DIM, _KEY, _PLAIN = b"\x1b[2m", b"\x1b[36m", b"\x1b[0m"


class Formatter(Protocol):
    """What `--formatter` may name: a class without arguments whose objects have these. `close()` is called if there.

    The settings are those of `--formatter-property` and `--formatter-config`.
    """

    def configure(self, settings: Mapping[str, str]) -> None: ...

    def write_to(self, record: ConsumerRecord, output: BinaryIO) -> None: ...


def visible(data: bytes) -> bytes:
    """Text that a terminal shows and does not obey; bytes that are no text as `\\xff`. Lines and tabs stay."""
    return escaped_lines(data.decode(errors="backslashreplace")).encode()


class VisibleOutput:
    """For formatters that know nothing of terminals: what they write is made visible."""

    def __init__(self, output: BinaryIO) -> None:
        self._output = output

    def write(self, data: bytes) -> int:
        return self._output.write(visible(data))

    def flush(self) -> None:
        self._output.flush()


class DefaultFormatter:
    """Fields with separators between them; which ones, settings tell."""

    def __init__(self) -> None:
        self.is_coloured = False
        #: Whether what records hold is made `visible`. Separators are the caller's own, and stay as they are.
        self.is_careful = False

    def configure(self, settings: Mapping[str, str]) -> None:
        def shows(name: str, default: str = "false") -> bool:
            return settings.get(f"print.{name}", default).strip().lower() == "true"

        def separator(name: str, default: str) -> bytes:
            return settings.get(name, default).encode()

        self._fields: list[Callable[[ConsumerRecord], bytes]] = []
        for name, field in (
            ("timestamp", self._timestamp),
            ("partition", self._partition),
            ("offset", self._offset),
            ("delivery", self._delivery),
            ("epoch", self._epoch),
            ("headers", self._headers),
            ("key", self._key),
            ("value", self._value),
        ):
            if shows(name, "true" if name == "value" else "false"):
                self._fields.append(field)
        self._field_separator = separator("key.separator", "\t")
        self._line_separator = separator("line.separator", "\n")
        self._headers_separator = separator("headers.separator", ",")
        self._null = separator("null.literal", "null")
        self._read_key = _deserializer(settings, "key.deserializer")
        self._read_value = _deserializer(settings, "value.deserializer")
        # Kafka's help says the one, and its code reads the other.
        self._read_header = _deserializer(settings, "headers.deserializer", "header.deserializer")

    def write_to(self, record: ConsumerRecord, output: BinaryIO) -> None:
        if self._fields:
            # One write, so that a record which cannot be shown leaves no half of a line.
            parts = [field(record) for field in self._fields]
            output.write(self._field_separator.join(parts) + self._line_separator)

    def _timestamp(self, record: ConsumerRecord) -> bytes:
        name = _TIMESTAMP_NAMES.get(TimestampType(record.timestamp_type))
        return self._dim(f"{name}:{record.timestamp_ms}" if name else "NO_TIMESTAMP")

    def _partition(self, record: ConsumerRecord) -> bytes:
        return self._dim(f"Partition:{record.partition}")

    def _offset(self, record: ConsumerRecord) -> bytes:
        return self._dim(f"Offset:{record.offset}")

    def _delivery(self, record: ConsumerRecord) -> bytes:
        return self._dim(f"Delivery:{_UNKNOWN}")

    def _epoch(self, record: ConsumerRecord) -> bytes:
        return self._dim(f"Epoch:{_UNKNOWN if record.leader_epoch is None else record.leader_epoch}")

    def _headers(self, record: ConsumerRecord) -> bytes:
        if not record.headers:
            return self._dim("NO_HEADERS")
        shown = (
            self._careful(name.encode()) + b":" + self._shown(record, self._read_header, value)
            for name, value in record.headers
        )
        return self._headers_separator.join(shown)

    def _key(self, record: ConsumerRecord) -> bytes:
        key = self._shown(record, self._read_key, record.key)
        return _KEY + key + _PLAIN if self.is_coloured else key

    def _value(self, record: ConsumerRecord) -> bytes:
        return self._shown(record, self._read_value, record.value)

    def _shown(self, record: ConsumerRecord, read: Deserialize | None, data: bytes | None) -> bytes:
        if data is None:
            return self._null
        return self._careful(data if read is None else _text(read(record.topic, record.headers, data)))

    def _careful(self, data: bytes) -> bytes:
        return visible(data) if self.is_careful else data

    def _dim(self, text: str) -> bytes:
        return _DIM + text.encode() + _PLAIN if self.is_coloured else text.encode()


class LoggingFormatter(DefaultFormatter):
    """The same, and each record is logged besides."""

    def write_to(self, record: ConsumerRecord, output: BinaryIO) -> None:
        super().write_to(record, output)
        name = _TIMESTAMP_NAMES.get(TimestampType(record.timestamp_type))
        when = f"{name}:{record.timestamp_ms}, " if name else ""
        _log.info("%skey:%s, value:%s", when, _readable(record.key), _readable(record.value))


class NothingFormatter:
    """Shows nothing: for whoever wants only the count."""

    def configure(self, settings: Mapping[str, str]) -> None:
        pass

    def write_to(self, record: ConsumerRecord, output: BinaryIO) -> None:
        pass


class JsonFormatter:
    """Each record as a line of JSON. Bytes that are not UTF-8 are shown as {"base64": …}."""

    def configure(self, settings: Mapping[str, str]) -> None:
        self._read_key = _deserializer(settings, "key.deserializer")
        self._read_value = _deserializer(settings, "value.deserializer")
        self._read_header = _deserializer(settings, "headers.deserializer", "header.deserializer")

    def write_to(self, record: ConsumerRecord, output: BinaryIO) -> None:
        def shown(read: Deserialize | None, data: bytes | None) -> Any:
            return data if read is None or data is None else read(record.topic, record.headers, data)

        values = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "timestampType": _TIMESTAMP_NAMES.get(TimestampType(record.timestamp_type), "NoTimestampType"),
            "leaderEpoch": record.leader_epoch,
            "headers": [{"name": name, "value": shown(self._read_header, value)} for name, value in record.headers],
            "key": shown(self._read_key, record.key),
            "value": shown(self._read_value, record.value),
        }
        text = json.dumps(values, separators=(",", ":"), ensure_ascii=False, default=_json_value)
        output.write(text.encode() + b"\n")


class _StoredFormatter:
    """What a coordinator keeps in its topic, as JSON; records of other kinds are passed over."""

    #: Types of keys that are shown; None for all.
    types: frozenset[int] | None = None

    def configure(self, settings: Mapping[str, str]) -> None:
        self._keys, self._values = self._families()

    def _families(self) -> tuple[type[KeyMessage], type[ValueMessage]]:
        raise NotImplementedError

    def write_to(self, record: ConsumerRecord, output: BinaryIO) -> None:
        from barnabas.wire.json_form import to_json

        if record.key is None:
            return
        try:
            key = self._keys.decode_key(record.key)
            if key is None or (self.types is not None and key.TYPE not in self.types):
                return
            shown: dict[str, Any] = {"key": {"type": int(key.TYPE), "data": to_json(key, 0)}, "value": None}
            if record.value is not None:
                version = int.from_bytes(record.value[:2], "big", signed=True)
                value = self._values.decode_value(key.TYPE, record.value)
                shown["value"] = {"version": version, "data": to_json(value, version)}
        except RemoteProtocolError as problem:
            raise BarnabasError(
                f"the record of {record.topic}-{record.partition} at offset {record.offset} cannot be read: {problem}"
            ) from None
        output.write(compact_json(shown).encode() + b"\n")


class OffsetsFormatter(_StoredFormatter):
    """Committed offsets, from `__consumer_offsets`."""

    types = frozenset({0, 1})

    def _families(self) -> tuple[type[KeyMessage], type[ValueMessage]]:
        from barnabas.wire.stored.consumer_offsets import GroupKey, GroupValue

        return GroupKey, GroupValue


class GroupMetadataFormatter(OffsetsFormatter):
    """Classic groups, from `__consumer_offsets`."""

    types = frozenset({2})


class ShareGroupFormatter(OffsetsFormatter):
    """Share groups, from `__consumer_offsets`."""

    types = frozenset(range(10, 16))


class TransactionsFormatter(_StoredFormatter):
    """Transactions, from `__transaction_state`."""

    def _families(self) -> tuple[type[KeyMessage], type[ValueMessage]]:
        from barnabas.wire.stored.transaction_state import TransactionKey, TransactionValue

        return TransactionKey, TransactionValue


class ShareStateFormatter(_StoredFormatter):
    """What share groups have acknowledged, from `__share_group_state`."""

    def _families(self) -> tuple[type[KeyMessage], type[ValueMessage]]:
        from barnabas.wire.stored.share_group_state import ShareKey, ShareValue

        return ShareKey, ShareValue


FORMATTERS: Final[Mapping[str, type[Formatter]]] = {
    "default": DefaultFormatter,
    "logging": LoggingFormatter,
    "noop": NothingFormatter,
    "json": JsonFormatter,
    "offsets": OffsetsFormatter,
    "group-metadata": GroupMetadataFormatter,
    "transactions": TransactionsFormatter,
    "share-groups": ShareGroupFormatter,
    "share-group-state": ShareStateFormatter,
}

_KAFKA: Final = "org.apache.kafka.tools.consumer."
#: Names of Kafka's classes, those of older releases among them.
_JAVA_NAMES: Final = {
    f"{_KAFKA}DefaultMessageFormatter": "default",
    f"{_KAFKA}LoggingMessageFormatter": "logging",
    f"{_KAFKA}NoOpMessageFormatter": "noop",
    f"{_KAFKA}OffsetsMessageFormatter": "offsets",
    f"{_KAFKA}GroupMetadataMessageFormatter": "group-metadata",
    f"{_KAFKA}TransactionLogMessageFormatter": "transactions",
    f"{_KAFKA}ShareGroupMessageFormatter": "share-groups",
    f"{_KAFKA}group.share.ShareGroupStateMessageFormatter": "share-group-state",
    "kafka.tools.DefaultMessageFormatter": "default",
    "kafka.tools.LoggingMessageFormatter": "logging",
    "kafka.tools.NoOpMessageFormatter": "noop",
    "kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter": "offsets",
    "kafka.coordinator.group.GroupMetadataManager$GroupMetadataMessageFormatter": "group-metadata",
    "kafka.coordinator.transaction.TransactionLog$TransactionLogMessageFormatter": "transactions",
}


def formatter(name: str, settings: Mapping[str, str]) -> Formatter:
    """The formatter of this name: one of ours, which stand in for Kafka's, or a class given by its dotted path."""
    try:
        found: Formatter = Plugin(_JAVA_NAMES.get(name, name)).resolve(FORMATTERS)()
    except TypeError as problem:
        raise SettingsError(f"--formatter: {name} cannot be made without arguments: {problem}") from None
    if not hasattr(found, "configure") or not hasattr(found, "write_to"):
        raise SettingsError(f"--formatter: {name} must have configure(settings) and write_to(record, output)")
    found.configure(settings)
    return found


def _deserializer(settings: Mapping[str, str], *names: str) -> Deserialize | None:
    for name in names:
        if name in settings:
            from barnabas.client.serialization import as_deserializer

            prefix = f"{name}."
            own = {each.removeprefix(prefix): value for each, value in settings.items() if each.startswith(prefix)}
            return as_deserializer(settings[name], is_key=name.startswith("key."), settings=own)
    return None


def _text(value: Any) -> bytes:
    """As Java prints it, where Java has such a thing."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, dict | list):
        return compact_json(value).encode()
    return str(value).encode()


def _json_value(value: Any) -> Any:
    """What JSON has no form for: bytes above all."""
    if not isinstance(value, bytes):
        return str(value)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _readable(part: bytes | None) -> str:
    return "null" if part is None else part.decode("utf-8", "replace")
