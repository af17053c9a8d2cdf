"""Identifiers that every layer shares."""

from __future__ import annotations

import base64
import binascii
from random import Random
from typing import Any, ClassVar, NamedTuple, Self


class TopicPartition(NamedTuple):
    """One partition of one topic; sorts by topic, then number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Uuid(bytes):
    """The sixteen bytes of a topic, directory or cluster id. Its text form is Kafka's: 22 letters of URL-safe base64.

    >>> Uuid.parse("AAAAAAAAAAAAAAAAAAAAAQ") == Uuid.METADATA_TOPIC
    True

    The constructor takes sixteen bytes as they are, unchecked, since decoding runs through it.
    """

    __slots__ = ()

    ZERO: ClassVar[Self]
    #: The id of `__cluster_metadata`.
    METADATA_TOPIC: ClassVar[Self]

    #: Kafka keeps the first hundred values for meanings of its own (no id, unassigned or lost directory …).
    RESERVED_COUNT: ClassVar[int] = 100

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text form; `ValueError` says what is wrong with it."""
        try:
            raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        # Base64 has several spellings of one value; only ours is an id.
        if len(raw) != 16 or str(cls(raw)) != text:
            raise ValueError(f"{text!r} is not an id: 22 letters, digits, '-' or '_' are expected")
        return cls(raw)

    @classmethod
    def random(cls, randomness: Random) -> Self:
        """A fresh id. Reserved ones are avoided, and so is a leading '-', which command lines take for an option."""
        while True:
            raw = randomness.getrandbits(128).to_bytes(16, "big")
            # The version and variant bits of RFC 4122, as Java's random UUIDs have them.
            raw = raw[:6] + bytes([raw[6] & 0x0F | 0x40, raw[7], raw[8] & 0x3F | 0x80]) + raw[9:]
            candidate = cls(raw)
            if not candidate.is_reserved and not str(candidate).startswith("-"):
                return candidate

    @property
    def is_reserved(self) -> bool:
        return int.from_bytes(self, "big") < self.RESERVED_COUNT

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(self).rstrip(b"=").decode()

    def __repr__(self) -> str:
        return f"Uuid({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (bytes(self),)


Uuid.ZERO = Uuid(bytes(16))
Uuid.METADATA_TOPIC = Uuid(bytes(15) + b"\x01")
