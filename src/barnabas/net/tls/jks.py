"""Java's own key stores, JKS: the certificates that are trusted in them, and private keys.

A store is a list of entries with the digest of all before it, over the password and a constant, at the end. A key is
hidden by a stream of SHA-1 digests that begins with a salt; behind it stands the digest that tells whether the password
was right.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import Final

from barnabas.net.tls.der import OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, elements, oid_text, only

MAGIC: Final = b"\xfe\xed\xfe\xed"
#: Another format of Java's, whose keys are hidden in another way.
JCEKS_MAGIC: Final = b"\xce\xce\xce\xce"

_KEY_ENTRY: Final = 1
_TRUSTED_ENTRY: Final = 2
_DIGEST_BYTES: Final = 20
_WHITENER: Final = b"Mighty Aphrodite"
_KEY_PROTECTOR: Final = "1.3.6.1.4.1.42.2.17.1.1"
#: No store of ours has so many: a damaged count must not make us try.
_MAX_COUNT: Final = 100_000


@dataclass(frozen=True, slots=True)
class JksKey:
    """A key as it is hidden, and the certificates that belong to it, that of its owner first."""

    alias: str
    hidden: bytes
    chain: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class JksStore:
    """What is in a store; certificates are encoded in DER."""

    keys: tuple[JksKey, ...]
    trusted: tuple[bytes, ...]


class WrongPasswordError(ValueError):
    """The password is not that of the store, or of the key; or what it belongs to is damaged."""


def read_jks(data: bytes, password: str | None) -> JksStore:
    """Read a store. Without a password its digest is not compared. Raises `ValueError`."""
    if data[:4] != MAGIC:
        raise ValueError("this is no JKS store")
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password is not None:
        made = hashlib.sha1(password.encode("utf-16-be") + _WHITENER + body).digest()
        if not hmac.compare_digest(made, digest):
            raise WrongPasswordError("the password is wrong, or the store is damaged")
    reader = _Reader(body, 4)
    version = reader.number(4)
    if version not in (1, 2):
        raise ValueError(f"a JKS store of the version {version}; 1 and 2 are known")
    keys: list[JksKey] = []
    trusted: list[bytes] = []
    for _ in range(reader.count()):
        kind, alias = reader.number(4), reader.text()
        reader.take(8)  # when it was made
        if kind == _KEY_ENTRY:
            hidden = reader.take(reader.number(4))
            keys.append(JksKey(alias, hidden, tuple(reader.certificate(version) for _ in range(reader.count()))))
        elif kind == _TRUSTED_ENTRY:
            trusted.append(reader.certificate(version))
        else:
            raise ValueError(f"a JKS store with an entry of the kind {kind}, which is not known")
    return JksStore(tuple(keys), tuple(trusted))


def reveal_key(hidden: bytes, password: str) -> bytes:
    """The private key, in the form of PKCS #8. Raises `WrongPasswordError`, or `ValueError` for what is no key."""
    fields = list(elements(only(hidden, SEQUENCE).content))
    if len(fields) != 2 or fields[0].tag != SEQUENCE or fields[1].tag != OCTET_STRING:
        raise ValueError("a key in a JKS store is damaged")
    algorithm = next(elements(fields[0].content))
    if algorithm.tag != OBJECT_IDENTIFIER or oid_text(algorithm.content) != _KEY_PROTECTOR:
        raise ValueError("a key in a JKS store is hidden in a way that is not known")
    protected, secret = fields[1].content, password.encode("utf-16-be")
    salt, covered, digest = (
        protected[:_DIGEST_BYTES],
        protected[_DIGEST_BYTES:-_DIGEST_BYTES],
        protected[-_DIGEST_BYTES:],
    )
    stream, last = bytearray(), salt
    while len(stream) < len(covered):
        last = hashlib.sha1(secret + last).digest()
        stream += last
    plain = bytes(a ^ b for a, b in zip(covered, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + plain).digest(), digest):
        raise WrongPasswordError("the password of the key is wrong, or the key is damaged")
    return plain


class _Reader:
    def __init__(self, data: bytes, place: int) -> None:
        self._data = data
        self._place = place

    def take(self, size: int) -> bytes:
        end = self._place + size
        if end > len(self._data):
            raise ValueError("a JKS store is cut off")
        taken, self._place = self._data[self._place : end], end
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def count(self) -> int:
        count = self.number(4)
        if count > _MAX_COUNT:
            raise ValueError("a JKS store is damaged")
        return count

    def text(self) -> str:
        # Java's modified UTF-8, which differs for characters that names do not have.
        return self.take(self.number(2)).decode("utf-8", errors="replace")

    def certificate(self, version: int) -> bytes:
        kind = self.text() if version == 2 else "X.509"
        if kind not in ("X.509", "X509"):
            raise ValueError(f"a JKS store with a certificate of the kind {kind}")
        return self.take(self.number(4))
