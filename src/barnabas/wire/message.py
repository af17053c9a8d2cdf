"""What all messages share: their version ranges, and encoding and decoding through compiled codecs."""

from __future__ import annotations

from collections.abc import Generator
from enum import Flag, auto
from typing import Any, ClassVar, Self, TypeVar, cast

from barnabas.base.errors import LocalProtocolError, RemoteProtocolError, check
from barnabas.wire.compiler import Buffer, MessageCodec, compile_codec
from barnabas.wire.schema import NO_VERSIONS, Struct, Versions

S = TypeVar("S", bound=Struct)


class Message(Struct):
    """A struct that travels or is stored by itself, in one of its versions."""

    VERSIONS: ClassVar[Versions] = NO_VERSIONS
    #: The versions that use compact lengths and end each struct with tagged fields.
    FLEXIBLE: ClassVar[Versions] = NO_VERSIONS
    _codecs: ClassVar[dict[int, MessageCodec]]
    _sliced_codecs: ClassVar[dict[int, MessageCodec]]
    _piece_codecs: ClassVar[dict[tuple[type[Struct], int], MessageCodec]]

    def __init_subclass__(cls, versions: str | None = None, flexible: str = "none", **rest: Any) -> None:
        super().__init_subclass__(**rest)
        cls._codecs = {}
        cls._sliced_codecs = {}
        cls._piece_codecs = {}
        if versions is not None:
            cls.VERSIONS = Versions.parse(versions)
            cls.FLEXIBLE = Versions.parse(flexible)
            for each in cls.FIELDS:
                is_carried = any(version in each.versions for version in cls.VERSIONS)
                check(is_carried, f"{cls.__name__}: no version carries the field {each.name}")

    @classmethod
    def codec(cls, version: int, *, sliced: bool = False) -> MessageCodec:
        """The codec of one version, compiled when it is first asked for."""
        codecs = cls._sliced_codecs if sliced else cls._codecs
        try:
            return codecs[version]
        except KeyError:
            if version not in cls.VERSIONS:
                raise LocalProtocolError(
                    f"{cls.__name__} has versions {cls.VERSIONS}, and {version} is not one of them"
                ) from None
            codec = codecs[version] = compile_codec(cls, version, version in cls.FLEXIBLE, sliced=sliced)
            return codec

    @classmethod
    def decode(cls, data: Buffer, version: int) -> Self:
        """Read a message that fills `data`. `records` fields are views into `data`, not copies."""
        message, end = cls.decode_prefix(data, version)
        if end != len(data):
            raise RemoteProtocolError(
                f"{cls.__name__} v{version}: {len(data) - end} bytes are left over after the last field, at byte {end}"
            )
        return message

    @classmethod
    def decode_prefix(cls, data: Buffer, version: int, start: int = 0) -> tuple[Self, int]:
        """Read a message that begins at `start`; also return where it ends."""
        codec = cls._codecs.get(version) or cls.codec(version)
        try:
            decoded: tuple[Self, int] = codec.decode(data, start)
        except codec.DECODE_FAILURES as failure:
            raise codec.explain_decode(failure) from None
        return decoded

    @classmethod
    def decode_in_slices(
        cls, data: Buffer, version: int, start: int, max_elements: int
    ) -> Generator[None, None, tuple[Self, int]]:
        """As `decode_prefix`, for bytes that may hold very many elements: yields after every few of them, and refuses
        more than `max_elements`."""
        codec = cls.codec(version, sliced=True)
        try:
            decoded: tuple[Self, int] = yield from codec.decode(data, start, max_elements)
        except codec.DECODE_FAILURES as failure:
            raise codec.explain_decode(failure) from None
        return decoded

    def encode(self, version: int) -> bytes:
        """The message as bytes."""
        return b"".join(self.encode_parts(version))

    def encode_parts(self, version: int) -> list[Buffer]:
        """The message as buffers to be sent one after the other; each `records` field is one of them, uncopied."""
        codec = self._codecs.get(version) or self.codec(version)
        parts: list[Buffer] = []
        try:
            codec.encode(self, parts)
        except codec.ENCODE_FAILURES as failure:
            raise codec.explain_encode(failure) from None
        return parts

    @classmethod
    def piece(cls, element: S, version: int) -> S:
        """An element of one of the message's arrays, encoded: it takes the element's place in a message that is to be
        encoded in slices, and much less memory."""
        key = (type(element), version)
        codec = cls._piece_codecs.get(key)
        if codec is None:
            codec = cls._piece_codecs[key] = compile_codec(type(element), version, version in cls.FLEXIBLE)
        parts: list[Buffer] = []
        try:
            codec.encode(element, parts)
        except codec.ENCODE_FAILURES as failure:
            raise codec.explain_encode(failure) from None
        return cast(S, b"".join(parts))

    def encode_in_slices(self, version: int) -> Generator[None, None, list[Buffer]]:
        """As `encode_parts`, yielding after every few elements."""
        codec = self.codec(version, sliced=True)
        parts: list[Buffer] = []
        try:
            yield from codec.encode(self, parts)
        except codec.ENCODE_FAILURES as failure:
            raise codec.explain_encode(failure) from None
        return parts


class Listeners(Flag):
    """Where a request may arrive."""

    NOWHERE = 0
    BROKER = auto()
    CONTROLLER = auto()


class Request(Message):
    """A question to a node. `SERVED` is what a node answers; older versions are there for talking to older nodes."""

    API_KEY: ClassVar[int]
    SERVED: ClassVar[Versions]
    LISTENERS: ClassVar[Listeners]

    def __init_subclass__(
        cls, api_key: int = -1, served: str | None = None, listeners: str = "broker", **rest: Any
    ) -> None:
        super().__init_subclass__(**rest)
        cls.API_KEY = api_key
        cls.SERVED = Versions.parse(served) if served is not None else cls.VERSIONS
        cls.LISTENERS = Listeners.NOWHERE
        for name in listeners.split():
            cls.LISTENERS |= Listeners[name.upper()]


class Response(Message):
    """The answer to the request with the same key, in the same version."""

    API_KEY: ClassVar[int]

    def __init_subclass__(cls, api_key: int = -1, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        cls.API_KEY = api_key
