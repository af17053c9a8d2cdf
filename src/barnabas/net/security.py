"""How the connections that we open are secured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from barnabas.net.sasl_client import SaslLogin
from barnabas.net.tls.dialing import ClientTls


@dataclass(frozen=True, slots=True)
class ChannelSecurity:
    """What a peer is shown, and whether by TLS; nothing for one that does not ask."""

    login: SaslLogin | None = None
    tls: ClientTls | None = None


PLAINTEXT: Final = ChannelSecurity()
