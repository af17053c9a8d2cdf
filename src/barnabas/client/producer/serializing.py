"""The serializer of a producer's keys, or of its values, in the forms in which it is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from barnabas.client.serialization import (
    AnySerializer,
    Headers,
    Serialize,
    StringSerde,
    load,
    not_bytes,
    serialize_with,
)


class Serializing:
    """One of the two serializers of a producer. Without one, bytes are taken as they are, and nothing else is."""

    __slots__ = ("_is_key", "plugin", "serialize")

    def __init__(self, plugin: Any, serialize: Serialize | None, *, is_key: bool) -> None:
        #: What the program gave, to be closed with the producer.
        self.plugin = plugin
        #: Called with topic, headers and object; None if bytes stay as they are.
        self.serialize = serialize
        self._is_key = is_key

    @classmethod
    def of(cls, given: AnySerializer, *, is_key: bool, settings: Mapping[str, object]) -> Self:
        plugin = load(given, is_key=is_key, settings=settings)
        return cls(plugin, None if plugin is None else serialize_with(plugin, is_key=is_key), is_key=is_key)

    @property
    def leaves_columns(self) -> bool:
        """Whether columns of bytes or text, as they are, are what it would make."""
        return self.plugin is None or (type(self.plugin) is StringSerde and self.plugin.is_utf8)

    def bytes_of(self, topic: str, headers: Headers, data: Any) -> bytes | None:
        if self.serialize is not None:
            return self.serialize(topic, headers, data)
        if data is None or type(data) is bytes:
            return data
        try:
            return bytes(memoryview(data))
        except TypeError:
            raise not_bytes(topic, self._is_key, data) from None
