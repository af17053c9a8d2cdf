"""`sasl.jaas.config`: a line in the form of Java's JAAS files, with Kafka's login modules.

org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="…" user_ann="…";
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from barnabas.base.sasl.mechanisms import Mechanism

_PACKAGE: Final = "org.apache.kafka.common.security"
#: What Kafka calls its login modules, and those that came before.
MODULES: Final[Mapping[str, tuple[Mechanism, ...]]] = {
    f"{_PACKAGE}.plain.PlainLoginModule": (Mechanism.PLAIN,),
    f"{_PACKAGE}.scram.ScramLoginModule": (Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512),
    f"{_PACKAGE}.oauthbearer.OAuthBearerLoginModule": (Mechanism.OAUTHBEARER,),
}
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_PART: Final = re.compile(
    r"""\s*(?:(?P<quoted>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(?P<sign>[=;])|(?P<word>[^\s"'=;]+))""", re.DOTALL
)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_USER: Final = "user_"


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """One login module and its options, which are not shown: passwords are among them."""

    module: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def users(self) -> dict[str, str]:
        """The passwords of `user_NAME="…"`, by name: whom a broker lets in by PLAIN."""
        return {name.removeprefix(_USER): each for name, each in self.options.items() if name.startswith(_USER)}

    def check_module(self, mechanism: Mechanism) -> None:
        """Raises `ValueError` for people to read if this is the module of another mechanism."""
        expected = next(name for name, those in MODULES.items() if mechanism in those)
        if self.module != expected:
            raise ValueError(f"{mechanism} needs the login module {expected}, and not {self.module}")


def parse_jaas(text: str) -> JaasEntry:
    """Read one entry. Raises `ValueError` for people to read, which repeats nothing that may be a secret."""
    parts = _parts(text)
    if len(parts) < 3:
        raise ValueError("a login module, a control flag and a semicolon at the end are expected")
    module, flag = parts[0][1], parts[1][1]
    if flag.lower() not in _FLAGS:
        raise ValueError(f"a control flag must follow the login module: one of {', '.join(_FLAGS)}")
    if parts[-1] != ("sign", ";"):
        raise ValueError("there must be a semicolon at the end")
    options: dict[str, str] = {}
    place = 2
    while parts[place] != ("sign", ";"):
        name, value = parts[place][1], parts[place + 2] if place + 2 < len(parts) else ("sign", ";")
        if parts[place][0] != "word" or parts[place + 1] != ("sign", "=") or value[0] == "sign":
            raise ValueError(f'option {len(options) + 1} does not look like name="value"')
        options[name] = value[1]
        place += 3
    if place != len(parts) - 1:
        raise ValueError("exactly one login module may be given")
    return JaasEntry(module, options)


def _parts(text: str) -> list[tuple[str, str]]:
    parts = []
    place, end = 0, len(text.rstrip())
    while place < end:
        match = _PART.match(text, place, end)
        if match is None:
            raise ValueError("a quotation mark is not closed")
        kind = str(match.lastgroup)
        value = match[kind]
        if kind == "quoted":
            value = _ESCAPED.sub(lambda found: _ESCAPES.get(found[1], found[1]), value[1:-1])
        parts.append((kind, value))
        place = match.end()
    return parts
