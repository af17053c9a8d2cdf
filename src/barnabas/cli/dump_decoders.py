"""How `dump-log` shows the keys and values of records: as text, or decoded as what internal topics hold."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from barnabas.base.errors import BarnabasError, RemoteProtocolError
from barnabas.records import ControlType, Record, control_type
from barnabas.wire.compiler import Buffer
from barnabas.wire.json_form import to_json
from barnabas.wire.message import Message
from barnabas.wire.stored.forms import KeyMessage, ValueMessage

_DELETED: Final = "<DELETE>"


class ShownRecord(NamedTuple):
    """A record's key and value: text, a number or values for JSON. None where there is nothing to show."""

    key: Any
    payload: Any


RecordDecoder = Callable[[Record], ShownRecord]
PartDecoder = Callable[[bytes], Any]


def _text(part: bytes) -> str:
    return part.decode("utf-8", "replace")


def _number(form: str, name: str) -> PartDecoder:
    size_bytes = struct.calcsize(form)

    def decode(part: bytes) -> int:
        if len(part) != size_bytes:
            raise BarnabasError(f"{name} takes {size_bytes} bytes, and a record has {len(part)}")
        number: int = struct.unpack(form, part)[0]
        return number

    return decode


#: By the names of Kafka's classes.
PART_DECODERS: Final[dict[str, PartDecoder]] = {
    "StringDecoder": _text,
    "IntegerDecoder": _number(">i", "IntegerDecoder"),
    "LongDecoder": _number(">q", "LongDecoder"),
}


def part_decoder(class_name: str) -> PartDecoder:
    """The decoder that Kafka has under a class name. Those of others are Java, which cannot run here."""
    package, _, name = class_name.rpartition(".")
    decoder = PART_DECODERS.get(name) if package in ("", "org.apache.kafka.tools.api", "kafka.serializer") else None
    if decoder is None:
        raise BarnabasError(f"{class_name}: only {', '.join(PART_DECODERS)} can be used here")
    return decoder


def plain(key_decoder: PartDecoder = _text, value_decoder: PartDecoder = _text) -> RecordDecoder:
    """Keys and values as each decoder shows them."""

    def decode(record: Record) -> ShownRecord:
        return ShownRecord(
            None if record.key is None else key_decoder(record.key),
            None if record.value is None else value_decoder(record.value),
        )

    return decode


def cluster_metadata() -> RecordDecoder:
    """What lies in `__cluster_metadata`."""
    from barnabas.wire.stored.cluster_metadata import MetadataRecord

    def decode(record: Record) -> ShownRecord:
        try:
            message, version = MetadataRecord.decode_framed(record.value or b"")
        except RemoteProtocolError as problem:
            return ShownRecord(None, f"Error at {record.offset}, skipping. {problem}")
        return ShownRecord(
            None, {"type": _upper_name(type(message)), "version": version, "data": to_json(message, version)}
        )

    return decode


def _upper_name(message: type[Message]) -> str:
    """`NoOpRecord` → `NO_OP_RECORD`."""
    name = message.__name__
    return "".join(f"_{char}" if char.isupper() and place else char for place, char in enumerate(name)).upper()


def offsets() -> RecordDecoder:
    """What lies in `__consumer_offsets`."""
    from barnabas.wire.stored.consumer_offsets import GroupKey, GroupMetadataValue, GroupValue

    def show(value: Message, version: int) -> dict[str, Any]:
        shown = to_json(value, version)
        if isinstance(value, GroupMetadataValue) and value.protocol_type == "consumer":
            for member, stored in zip(shown["members"], value.members, strict=True):
                member["subscription"] = _embedded("ConsumerProtocolSubscription", stored.subscription)
                member["assignment"] = _embedded("ConsumerProtocolAssignment", stored.assignment)
        return shown

    return _keyed(GroupKey, GroupValue, show)


def _embedded(name: str, data: Buffer) -> Any:
    """What consumers told each other, as far as it can be read."""
    import base64

    from barnabas.wire.embedded import consumer_protocol

    message: type[Message] = getattr(consumer_protocol, name)
    try:
        version = min(int.from_bytes(data[:2], "big", signed=True), message.VERSIONS.high)
        return to_json(message.decode_prefix(data, version, 2)[0], version)
    except (RemoteProtocolError, ValueError):
        return base64.b64encode(data).decode()


def transactions() -> RecordDecoder:
    """What lies in `__transaction_state`."""
    from barnabas.wire.stored.transaction_state import TransactionKey, TransactionValue

    return _keyed(TransactionKey, TransactionValue, to_json)


def share_groups() -> RecordDecoder:
    """What lies in `__share_group_state`."""
    from barnabas.wire.stored.share_group_state import ShareKey, ShareValue

    return _keyed(ShareKey, ShareValue, to_json)


def _keyed(
    keys: type[KeyMessage], values: type[ValueMessage], show: Callable[[Message, int], dict[str, Any]]
) -> RecordDecoder:
    def decode(record: Record) -> ShownRecord:
        if record.key is None:
            raise BarnabasError(
                f"the record at offset {record.offset} has no key, so it is not one of the topic that was named; try "
                "without the decoder"
            )
        try:
            key = keys.decode_key(record.key)
            if key is None:
                number = int.from_bytes(record.key[:2], "big", signed=True)
                return ShownRecord(f"Unknown record type {number} at offset {record.offset}, skipping.", None)
            shown_key = {"type": str(key.TYPE), "data": to_json(key, 0)}
            if record.value is None:
                return ShownRecord(shown_key, _DELETED)
            value = values.decode_value(key.TYPE, record.value)
            version = int.from_bytes(record.value[:2], "big", signed=True)
            return ShownRecord(shown_key, {"version": str(version), "data": show(value, version)})
        except RemoteProtocolError as problem:
            return ShownRecord(f"Error at offset {record.offset}, skipping. {problem}", None)

    return decode


class ControlShown(NamedTuple):
    """A control record: its name as Kafka's tool has it, what stands between it and the rest, and the rest."""

    name: str
    separator: str
    data: Any


_CONTROL_NAMES: Final = {
    ControlType.LEADER_CHANGE: ("LeaderChange", ": ", "LeaderChangeMessage"),
    ControlType.SNAPSHOT_HEADER: ("SnapshotHeader", " ", "SnapshotHeaderRecord"),
    ControlType.SNAPSHOT_FOOTER: ("SnapshotFooter", " ", "SnapshotFooterRecord"),
    ControlType.KRAFT_VERSION: ("KRaftVersion", " ", "KRaftVersionRecord"),
    ControlType.KRAFT_VOTERS: ("KRaftVoters", " ", "VotersRecord"),
}


def control(record: Record) -> ControlShown:
    """What a control record says."""
    from barnabas.wire.stored import control_records

    kind = control_type(record)
    value = record.value or b""
    if kind in (ControlType.COMMIT, ControlType.ABORT):
        epoch = int.from_bytes(value[2:6], "big", signed=True)
        return ControlShown("endTxnMarker", ": ", f"{kind.name} coordinatorEpoch: {epoch}")
    if kind not in _CONTROL_NAMES:
        number = int.from_bytes((record.key or b"")[2:4], "big", signed=True)
        return ControlShown("controlType", ": ", f"{kind.name}({number})")
    name, separator, class_name = _CONTROL_NAMES[kind]
    message: type[Message] = getattr(control_records, class_name)
    version = min(int.from_bytes(value[:2], "big"), message.VERSIONS.high)
    return ControlShown(name, separator, to_json(message.decode_prefix(value, version)[0], version))
