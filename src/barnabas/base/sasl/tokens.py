"""Delegation tokens: the secret of a token is an HMAC of its id, so that nobody has to keep it."""

from __future__ import annotations

import hmac
from base64 import b64encode


def token_hmac(secret_key: str, token_id: str) -> bytes:
    """What a token's owner is given, under the key that all nodes of the cluster share."""
    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")


def token_password(token: bytes) -> str:
    """The password with which it logs in by SCRAM."""
    return b64encode(token).decode()
