"""The name in a certificate, spelt as Java spells it after RFC 2253: ACLs and mapping rules are written for that.

The last part of the name comes first. Only nine kinds of attributes have a short name; others are shown by the number
of their kind, with their encoded value in hexadecimal digits.
"""

from __future__ import annotations

from typing import Final

from barnabas.net.tls.der import OBJECT_IDENTIFIER, SEQUENCE, SET, Element, elements, oid_text, only

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
#: The tags of those kinds of text that Java shows, all of them as if they were UTF-8. Of others it shows the encoding.
_TEXTS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E})
_ESCAPED: Final = ',=+<>#;"\\'
_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_ALTERNATIVE_NAMES: Final = bytes.fromhex("551d11")
#: Serial number, algorithm, issuer and validity stand before the subject.
_BEFORE_SUBJECT: Final = 4


def subject_of(certificate: bytes) -> bytes:
    """The encoded name of whom a certificate belongs to. Raises `ValueError` for what is no certificate."""
    to_be_signed = next(elements(only(certificate, SEQUENCE).content), None)
    if to_be_signed is None or to_be_signed.tag != SEQUENCE:
        raise ValueError("this is no certificate")
    fields = [each for each in elements(to_be_signed.content) if each.tag != _VERSION]
    if len(fields) <= _BEFORE_SUBJECT or fields[_BEFORE_SUBJECT].tag != SEQUENCE:
        raise ValueError("a certificate without a subject")
    return fields[_BEFORE_SUBJECT].raw


def alternative_names(certificate: bytes) -> frozenset[bytes]:
    """The subject alternative names of a certificate as they are encoded. Raises `ValueError` for what is none."""
    to_be_signed = next(elements(only(certificate, SEQUENCE).content))
    for field in elements(to_be_signed.content):
        if field.tag != _EXTENSIONS:
            continue
        for extension in elements(only(field.content, SEQUENCE).content):
            kind, *_, value = elements(extension.content)
            if kind.content == _ALTERNATIVE_NAMES:
                return frozenset(each.raw for each in elements(only(value.content, SEQUENCE).content))
    return frozenset()


def rfc2253(name: bytes) -> str:
    """An encoded name in Java's spelling. Raises `ValueError` for what is no name."""
    parts = [_relative_name(each) for each in elements(only(name, SEQUENCE).content)]
    return ",".join(reversed(parts))


def subject_name(certificate: bytes) -> str:
    """Whom a certificate belongs to, in Java's spelling."""
    return rfc2253(subject_of(certificate))


def _relative_name(part: Element) -> str:
    if part.tag != SET:
        raise ValueError("a part of a name is no set")
    return "+".join(map(_attribute, elements(part.content)))


def _attribute(attribute: Element) -> str:
    fields = list(elements(attribute.content))
    if attribute.tag != SEQUENCE or len(fields) != 2 or fields[0].tag != OBJECT_IDENTIFIER:
        raise ValueError("a part of a name has no kind and value")
    kind, value = oid_text(fields[0].content), fields[1]
    keyword = _KEYWORDS.get(kind)
    if keyword is None or value.tag not in _TEXTS:
        return f"{keyword or kind}=#{value.raw.hex()}"
    return f"{keyword}={_escaped(value.content.decode(errors='replace'))}"


def _escaped(text: str) -> str:
    escaped = "".join(f"\\{each}" if each in _ESCAPED else "\\00" if each == "\0" else each for each in text)
    leading = len(escaped) - len(escaped.lstrip(" "))
    trailing = len(escaped) - len(escaped.rstrip(" ")) if leading < len(escaped) else 0
    inner = escaped[leading : len(escaped) - trailing]
    return "\\ " * leading + inner + "\\ " * trailing
