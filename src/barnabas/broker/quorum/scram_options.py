"""The first users of a cluster, as `storage format --add-scram` is told them.

SCRAM-SHA-256=[name=ann,password=swordfish,iterations=8192]
SCRAM-SHA-512=[name=ann,salt="MWx2NHBk…",saltedpassword="mT0yyUUx…"]
"""

from __future__ import annotations

import re
from base64 import b64decode
from random import Random
from typing import Final

from barnabas.base.errors import BarnabasError
from barnabas.base.sasl import SCRAM_MECHANISMS, mechanism_called
from barnabas.base.sasl.scram import MAX_ITERATIONS, MIN_ITERATIONS, ScramCredential
from barnabas.metadata.scram_users import scram_record
from barnabas.wire.stored.cluster_metadata import UserScramCredentialRecord

_FORM: Final = re.compile(r"\s*([^=\s]+)\s*=\s*\[(.*)\]\s*", re.DOTALL)
_PART: Final = re.compile(r'\s*(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^,"]*))\s*(?:,|$)', re.DOTALL)
_NAMES: Final = ("name", "salt", "iterations", "password", "saltedpassword")
_SALT_BYTES: Final = 32


def parse_scram(text: str, randomness: Random) -> UserScramCredentialRecord:
    """Raises `BarnabasError` for people to read, which does not repeat what may be a password."""
    try:
        return _parsed(text, randomness)
    except ValueError as problem:
        raise BarnabasError(f"--add-scram: {problem}") from None


def _parsed(text: str, randomness: Random) -> UserScramCredentialRecord:
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError("write it like SCRAM-SHA-256=[name=ann,password=secret]")
    mechanism = mechanism_called(match[1])
    if mechanism not in SCRAM_MECHANISMS:
        raise ValueError(f"{mechanism} keeps no users; there are {' and '.join(SCRAM_MECHANISMS)}")
    given = _pairs(match[2])
    name = given.get("name")
    if not name:
        raise ValueError("a name= is missing")
    iterations = _iterations(given.get("iterations"))
    if ("password" in given) == ("saltedpassword" in given):
        raise ValueError(f"{name} needs a password= or a saltedpassword=, and not both")
    if "password" in given:
        salt = _base64(given["salt"], "salt") if "salt" in given else randomness.randbytes(_SALT_BYTES)
        return scram_record(
            name, mechanism, ScramCredential.of_password(given["password"], mechanism, salt, iterations)
        )
    if "salt" not in given:
        raise ValueError(f"the saltedpassword= of {name} needs the salt= with which it was made")
    salted = _base64(given["saltedpassword"], "saltedpassword")
    salt = _base64(given["salt"], "salt")
    return scram_record(name, mechanism, ScramCredential.of_salted(salted, mechanism, salt, iterations))


def _pairs(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    place = 0
    while place < len(text):
        match = _PART.match(text, place)
        if match is None:
            raise ValueError("what stands between the brackets does not look like name=value,name=value")
        name = match[1].lower()
        if name not in _NAMES:
            raise ValueError(f"{name}= is not known; there are {', '.join(_NAMES)}")
        if name in found:
            raise ValueError(f"{name}= is given twice")
        quoted = match[2]
        found[name] = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else match[3].strip()
        place = match.end()
    return found


def _iterations(text: str | None) -> int:
    if text is None:
        return MIN_ITERATIONS
    number = int(text) if text.isdecimal() and len(text) < 10 else -1
    if not MIN_ITERATIONS <= number <= MAX_ITERATIONS:
        raise ValueError(f"iterations= must be {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    return number


def _base64(text: str, name: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise ValueError(f"{name}= is not base64") from None
