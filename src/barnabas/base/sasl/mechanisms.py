"""The mechanisms that are built, by the names that travel."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Mechanism(StrEnum):
    """A way to log in. GSSAPI (Kerberos) is not among them."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"

    @property
    def hash_name(self) -> str:
        """The hash of a SCRAM mechanism, as `hashlib` calls it."""
        return "sha256" if self is Mechanism.SCRAM_SHA_256 else "sha512"

    @property
    def number(self) -> int:
        """The number of a SCRAM mechanism in requests and in the metadata log."""
        return 1 if self is Mechanism.SCRAM_SHA_256 else 2


SCRAM_MECHANISMS: Final = (Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512)


def mechanism_called(name: str) -> Mechanism:
    """The mechanism of this name. Raises `ValueError` for people to read."""
    try:
        return Mechanism(name)
    except ValueError:
        built = ", ".join(Mechanism)
        if name == "GSSAPI":
            raise ValueError(f"GSSAPI (Kerberos) is not built; there are {built}") from None
        raise ValueError(f"no mechanism is called {name}; there are {built}") from None
