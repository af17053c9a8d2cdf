"""What goes wrong with TLS, in words that help and tell nothing that is secret."""

from __future__ import annotations

import ssl
from enum import Enum
from typing import Final


class TlsFailure(Enum):
    """Kinds of failures, by who turned whom away."""

    #: We do not accept the peer: its certificate, its version, its ciphers.
    REFUSED = "refused"
    #: The peer does not accept us, and said so.
    REFUSED_BY_PEER = "refused by the peer"
    #: The peer does not speak TLS.
    NO_TLS = "no TLS"
    #: The connection ended, and nobody said why.
    ENDED = "ended"
    LATE = "late"
    TOO_LARGE = "too large"


#: What alerts of the peer say of us.
_ALERTS: Final = {
    "CERTIFICATE_REQUIRED": "it wants a certificate of ours, and we have none; give ssl.keystore.*",
    "UNKNOWN_CA": "it does not trust who signed our certificate",
    "BAD_CERTIFICATE": "it refuses our certificate",
    "CERTIFICATE_EXPIRED": "our certificate has expired",
    "CERTIFICATE_REVOKED": "our certificate was revoked",
    "CERTIFICATE_UNKNOWN": "it refuses our certificate",
    "PROTOCOL_VERSION": "it knows no version of TLS that we may use; compare ssl.enabled.protocols",
    "HANDSHAKE_FAILURE": "it refuses: we have no cipher suite in common, or it wants a certificate of ours",
    "DECRYPT_ERROR": "it could not verify what we signed",
    "ACCESS_DENIED": "it denies us access",
    "UNRECOGNIZED_NAME": "it does not know the host name that we asked for",
}
#: What our library says of the peer.
_REASONS: Final = {
    "WRONG_VERSION_NUMBER": (TlsFailure.NO_TLS, "it does not speak TLS"),
    "HTTP_REQUEST": (TlsFailure.NO_TLS, "it speaks HTTP, not TLS"),
    "HTTPS_PROXY_REQUEST": (TlsFailure.NO_TLS, "it speaks HTTP, not TLS"),
    "RECORD_LAYER_FAILURE": (TlsFailure.NO_TLS, "what it sends is no TLS"),
    "UNSUPPORTED_PROTOCOL": (TlsFailure.REFUSED, "it offers no version of TLS that is enabled here"),
    "VERSION_TOO_LOW": (TlsFailure.REFUSED, "it offers no version of TLS that is enabled here"),
    "NO_SHARED_CIPHER": (TlsFailure.REFUSED, "there is no cipher suite that both know"),
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": (TlsFailure.REFUSED, "it showed no certificate, and one is required"),
    "CERTIFICATE_VERIFY_FAILED": (TlsFailure.REFUSED, "its certificate is not accepted"),
    "UNEXPECTED_EOF_WHILE_READING": (TlsFailure.ENDED, "the connection ended"),
}


class TlsError(ConnectionError):
    """TLS failed on a connection; `kind` tells how."""

    def __init__(self, kind: TlsFailure, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text

    @classmethod
    def of(cls, problem: ssl.SSLError) -> TlsError:
        """What the library says, in our words."""
        if isinstance(problem, ssl.SSLCertVerificationError):
            return cls(TlsFailure.REFUSED, f"its certificate is not accepted: {problem.verify_message}")
        reason = problem.reason or "UNKNOWN"
        _, is_alert, alert = reason.partition("_ALERT_")
        if is_alert:
            words = _ALERTS.get(alert, f"it broke off: {_plain(alert)}")
            return cls(TlsFailure.REFUSED_BY_PEER, words)
        kind, words = _REASONS.get(reason, (TlsFailure.REFUSED, f"TLS failed: {_plain(reason)}"))
        return cls(kind, words)


def _plain(reason: str) -> str:
    return reason.lower().replace("_", " ")
