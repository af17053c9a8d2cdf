"""How the connections that we open are secured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from barnabas.net.sasl_client import SaslLogin


@dataclass(frozen=True, slots=True)
class ChannelSecurity:
    """What a peer is shown; nothing for one that does not ask."""

    login: SaslLogin | None = None


PLAINTEXT: Final = ChannelSecurity()
