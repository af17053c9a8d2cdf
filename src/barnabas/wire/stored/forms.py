"""How stored messages say which type and version they are: two forms, one for each family of topics.

*Framed* (`__cluster_metadata`, `__remote_log_metadata`): the record's value is frame version 1, type and version as
unsigned varints, then the message.

*Keyed* (`__consumer_offsets`, `__transaction_state`, `__share_group_state`): the record's key is the type as int16,
then the key; the value is its version as int16, then the value. A null value deletes the key.
"""

from __future__ import annotations

import struct
from typing import Any, ClassVar

from barnabas.base.errors import RemoteProtocolError, check
from barnabas.wire.compiler import Buffer
from barnabas.wire.message import Message
from barnabas.wire.varint import Malformed, decode_uvarint, encode_uvarint

FRAME_VERSION = 1


class StoredMessage(Message):
    """A message with a type number, which is unique within its family."""

    TYPE: ClassVar[int] = -1
    _family: ClassVar[dict[int, type[Any]]]

    def __init_subclass__(cls, type_id: int | None = None, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        if type_id is None:
            cls._family = {}
            return
        check(type_id not in cls._family, f"{cls.__name__}: type {type_id} is taken")
        cls.TYPE = type_id
        cls._family[type_id] = cls

    @classmethod
    def family(cls) -> dict[int, type[Any]]:
        """All types of this family by number."""
        return dict(cls._family)


class FramedMessage(StoredMessage):
    """Base of a family whose values carry type and version in front. Use `Family.decode_framed`."""

    def encode_framed(self, version: int) -> bytes:
        head = encode_uvarint(FRAME_VERSION) + encode_uvarint(self.TYPE) + encode_uvarint(version)
        return head + self.encode(version)

    @classmethod
    def decode_framed(cls, data: Buffer) -> tuple[Any, int]:
        """The message and the version that it was stored in."""
        try:
            frame, position = decode_uvarint(data, 0)
            type_id, position = decode_uvarint(data, position)
            version, position = decode_uvarint(data, position)
        except (IndexError, Malformed):
            raise RemoteProtocolError(f"{cls.__name__}: the frame of a stored message is cut short") from None
        if frame != FRAME_VERSION:
            raise RemoteProtocolError(f"{cls.__name__}: frame version {frame} is not known, only {FRAME_VERSION} is")
        message_class = cls._family.get(type_id)
        if message_class is None:
            raise RemoteProtocolError(f"{cls.__name__}: type {type_id} is not known")
        return _decode_known_version(message_class, data[position:], version), version


class KeyMessage(StoredMessage):
    """Base of a family of keys. All keys have one version, 0."""

    def encode_key(self) -> bytes:
        return struct.pack(">h", self.TYPE) + self.encode(0)

    @classmethod
    def decode_key(cls, data: Buffer) -> Any | None:
        """The key, or None for a type that we do not know: those belong to newer nodes and are passed over."""
        key_class = cls._family.get(_leading_int16(cls, data))
        return None if key_class is None else key_class.decode(data[2:], 0)


class ValueMessage(StoredMessage):
    """Base of a family of values; each has the type of its key."""

    def encode_value(self, version: int) -> bytes:
        return struct.pack(">h", version) + self.encode(version)

    @classmethod
    def decode_value(cls, type_id: int, data: Buffer) -> Any:
        """The value that belongs to a key of type `type_id`."""
        value_class = cls._family.get(type_id)
        if value_class is None:
            raise RemoteProtocolError(f"{cls.__name__}: type {type_id} is not known")
        return _decode_known_version(value_class, data[2:], _leading_int16(cls, data))


def _leading_int16(cls: type[Message], data: Buffer) -> int:
    if len(data) < 2:
        raise RemoteProtocolError(f"{cls.__name__}: the type or version of a stored message is cut short")
    return int.from_bytes(data[:2], "big", signed=True)


def _decode_known_version(message_class: type[Message], data: Buffer, version: int) -> Message:
    if version not in message_class.VERSIONS:
        raise RemoteProtocolError(
            f"{message_class.__name__}: version {version} was stored, versions {message_class.VERSIONS} are known"
        )
    return message_class.decode(data, version)
