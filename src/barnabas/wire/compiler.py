"""Compiles a declaration into flat Python functions, one pair per (message, version).

Why code and not a walk over the schema: a flat function decodes several times faster. Three things make it flat:
neighbouring fields of fixed size share one `struct` call, together with the length that follows them; nested structs
are loops in the same function; whatever a version does not have leaves no trace in its code.

Nothing is checked twice. Reading past the end fails by itself in `struct` or in indexing; slices, which would not, are
guarded by hand. The functions carry no bookkeeping for errors either: when one fails, the line on which it failed tells
the field, and its variable `p` the position.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from barnabas.base.errors import LocalProtocolError, RemoteProtocolError
from barnabas.wire.varint import ENCODED_UVARINTS, Malformed, decode_uvarint, encode_uvarint

if TYPE_CHECKING:
    from barnabas.wire.schema import Struct
    from barnabas.wire.source import Place

Buffer = bytes | bytearray | memoryview


class MessageCodec:
    """The two functions, or generators, of one version of one message, and how to explain why one of them failed."""

    __slots__ = ("_name", "_places", "decode", "encode")

    DECODE_FAILURES = (struct.error, IndexError, Malformed, UnicodeDecodeError)
    ENCODE_FAILURES = (struct.error, TypeError, AttributeError, ValueError, OverflowError)

    def __init__(self, name: str, scope: dict[str, Any], places: dict[int, list[Place]]) -> None:
        self._name = name
        self._places = places
        self.decode: Callable[..., Any] = scope["decode"]
        self.encode: Callable[[Any, list[Buffer]], Any] = scope["encode"]

    def explain_decode(self, failure: BaseException) -> RemoteProtocolError:
        frame, places = self._locate(failure, self.decode)
        position, size = frame.f_locals["p"], len(frame.f_locals["buf"])
        for place in places:
            # Of several fields that were to be read at once, the first that reaches past the end is meant.
            if position + struct.calcsize(f">{place.code}") > size or place is places[-1]:
                break
            position += struct.calcsize(f">{place.code}")
        reason = str(failure) if isinstance(failure, Malformed) else "the bytes end too early"
        if isinstance(failure, UnicodeDecodeError):
            reason = f"the text is not UTF-8 ({failure.reason})"
        return RemoteProtocolError(f"{self._name}: field {place.field} at byte {position}: {reason}")

    def explain_encode(self, failure: BaseException) -> LocalProtocolError:
        frame, places = self._locate(failure, self.encode)
        for place in places[:-1]:
            # Of several fields that were to be written at once, the first that fails by itself is meant.
            try:
                struct.pack(f">{place.code}", eval(place.variable, frame.f_globals, frame.f_locals))
            except self.ENCODE_FAILURES:
                break
        else:
            place = places[-1]
        return LocalProtocolError(f"{self._name}: field {place.field}: {failure}")

    def _locate(self, failure: BaseException, function: Callable[..., Any]) -> tuple[FrameType, list[Place]]:
        step = failure.__traceback__
        while step is not None and step.tb_frame.f_code is not function.__code__:
            step = step.tb_next
        if step is None:
            raise failure
        return step.tb_frame, self._places[step.tb_lineno]


def compile_codec(cls: type[Struct], version: int, flexible: bool, *, sliced: bool = False) -> MessageCodec:
    """Compile both directions of `cls` in `version`; `sliced`: as generators, which yield after every few elements."""
    from barnabas.wire.decoder_source import DecoderSource
    from barnabas.wire.encoder_source import EncoderSource

    decoder = DecoderSource(cls, version, flexible, first_line=1, sliced=sliced)
    encoder = EncoderSource(cls, version, flexible, first_line=decoder.next_line, sliced=sliced)
    scope: dict[str, Any] = {
        "Malformed": Malformed,
        "uvarint": decode_uvarint,
        "encode_uvarint": encode_uvarint,
        "UVARINTS": ENCODED_UVARINTS,
        **decoder.scope,
        **encoder.scope,
    }
    name = f"{cls.__name__} v{version}"
    exec(compile(decoder.text + encoder.text, f"<codec of {name}>", "exec"), scope)
    return MessageCodec(name, scope, decoder.places | encoder.places)
