"""SASL: how two sides of a connection find out who the other is, as machines without I/O.

A machine takes what the other side sent and gives what is to be sent. Chance and time come from outside: a nonce when
it is made, the time with whatever looks at expiry. So the same machines serve brokers, clients and tests.
"""

from __future__ import annotations

from barnabas.base.sasl.exchange import Authenticated, SaslClient, SaslError, SaslServer
from barnabas.base.sasl.mechanisms import SCRAM_MECHANISMS, Mechanism, mechanism_called

__all__ = [
    "SCRAM_MECHANISMS",
    "Authenticated",
    "Mechanism",
    "SaslClient",
    "SaslError",
    "SaslServer",
    "mechanism_called",
]
