"""The messages of SCRAM (RFC 5802), read strictly: what is not in the grammar is refused."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from barnabas.base.sasl.exchange import SaslError

_NAME: Final = r"(?:[^\x00=,]|=2C|=3D)+"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_VALUE: Final = r"[^\x00,]+"
_BASE64: Final = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{2}==|[a-zA-Z0-9/+]{3}=)?"

_CLIENT_FIRST: Final = re.compile(
    rf"(?P<header>n,(?:a=(?P<authzid>{_NAME}))?,)"
    rf"(?P<bare>(?:m={_VALUE},)?n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<more>(?:,[a-zA-Z]+={_VALUE})*))"
)
_SERVER_FIRST: Final = re.compile(
    rf"(?:m={_VALUE},)?r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}})"
    rf"(?:,[a-zA-Z]+={_VALUE})*"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<unproven>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE})(?:,[a-zA-Z]+={_VALUE})*),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL: Final = re.compile(rf"(?:e=(?P<error>{_VALUE})|v=(?P<signature>{_BASE64}))(?:,[a-zA-Z]+={_VALUE})*")


def escaped(name: str) -> str:
    """A user's name as it travels."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def base64_text(value: bytes) -> str:
    return b64encode(value).decode()


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """Who wants to log in. `header` and `bare` are the two halves of the text."""

    user: str
    nonce: str
    authorization_id: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)
    header: str = "n,,"
    bare: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        match = _matched(_CLIENT_FIRST, text, "the client's first message")
        more = match["more"]
        pairs = (each.split("=", 1) for each in more[1:].split(",")) if more else ()
        return cls(
            unescaped(match["name"]),
            match["nonce"],
            unescaped(match["authzid"] or ""),
            dict(pairs),
            match["header"],
            match["bare"],
        )


@dataclass(frozen=True, slots=True)
class ServerFirst:
    """How the password is to be salted."""

    nonce: str
    salt: bytes
    iterations: int

    @classmethod
    def parse(cls, text: str) -> Self:
        match = _matched(_SERVER_FIRST, text, "the server's first message")
        return cls(match["nonce"], _bytes_of(match["salt"]), int(match["iterations"]))

    def __str__(self) -> str:
        return f"r={self.nonce},s={base64_text(self.salt)},i={self.iterations}"


@dataclass(frozen=True, slots=True)
class ClientFinal:
    """The proof. `unproven` is the text that it covers."""

    binding: bytes
    nonce: str
    proof: bytes = field(repr=False)
    unproven: str

    @classmethod
    def parse(cls, text: str) -> Self:
        match = _matched(_CLIENT_FINAL, text, "the client's last message")
        return cls(_bytes_of(match["binding"]), match["nonce"], _bytes_of(match["proof"]), match["unproven"])


@dataclass(frozen=True, slots=True)
class ServerFinal:
    """That the server knows the credential, too; or an error."""

    error: str | None
    signature: bytes

    @classmethod
    def parse(cls, text: str) -> Self:
        match = _matched(_SERVER_FINAL, text, "the server's last message")
        return cls(match["error"], _bytes_of(match["signature"] or ""))


def _matched(pattern: re.Pattern[str], text: str, what: str) -> re.Match[str]:
    match = pattern.fullmatch(text)
    if match is None:
        raise SaslError(f"{what} is not one of SCRAM")
    return match


def _bytes_of(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except binascii.Error:
        raise SaslError("what should be base64 is not") from None
