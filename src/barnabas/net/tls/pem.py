"""Keys and certificates as text. In a `.properties` file all of it may stand in one line, as Kafka allows."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Final

_BLOCK: Final = re.compile(r"-+BEGIN\s+([^-]+?)\s*-+\s+([^-]*?)-+END\s+\1\s*-+")
_HEADER: Final = re.compile(r"[^\r\n:]+:[^\r\n]*[\r\n]+")
_LINE: Final = 64
CERTIFICATE: Final = "CERTIFICATE"


@dataclass(frozen=True, slots=True)
class PemBlock:
    """One block: what it is called, and what is in it. Headers belong to keys that are encrypted in an older form."""

    label: str
    content: bytes
    headers: str = ""

    @property
    def text(self) -> str:
        encoded = base64.b64encode(self.content).decode()
        lines = [encoded[place : place + _LINE] for place in range(0, len(encoded), _LINE)]
        head = f"{self.headers.strip()}\n\n" if self.headers else ""
        return f"-----BEGIN {self.label}-----\n{head}" + "\n".join(lines) + f"\n-----END {self.label}-----\n"


def pem_blocks(text: str) -> list[PemBlock]:
    """All blocks of a text; what stands between them is passed over. Raises `ValueError` for one that is damaged."""
    blocks = []
    for label, body in _BLOCK.findall(f"{text}\n"):
        headers = "".join(_HEADER.findall(body))
        encoded = "".join(_HEADER.sub("", body).split())
        try:
            blocks.append(PemBlock(" ".join(label.split()), base64.b64decode(encoded, validate=True), headers))
        except binascii.Error:
            raise ValueError(f"a block of the kind {label} is damaged") from None
    return blocks


def certificates_in(text: str) -> list[bytes]:
    """The certificates of a text, encoded in DER. Raises `ValueError` if there is none."""
    found = [each.content for each in pem_blocks(text) if each.label.endswith(CERTIFICATE)]
    if not found:
        raise ValueError("there is no certificate in it")
    return found


def private_key_in(text: str) -> PemBlock:
    """The private key of a text. Raises `ValueError` if there is none, or more than one."""
    found = [each for each in pem_blocks(text) if each.label.endswith("PRIVATE KEY")]
    if len(found) != 1:
        raise ValueError("there is no private key in it" if not found else "there is more than one private key in it")
    return found[0]


def certificate_text(certificates: list[bytes]) -> str:
    return "".join(PemBlock(CERTIFICATE, each).text for each in certificates)
