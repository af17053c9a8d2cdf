"""Cipher suites under the names of Java and of OpenSSL."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

#: Those of TLS 1.3 have one name everywhere.
TLS_1_3: Final = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_128_CCM_SHA256",
    "TLS_AES_128_CCM_8_SHA256",
)
_CIPHERS: Final = {
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "AES_128_CBC_SHA256": "AES128-SHA256",
    "AES_256_CBC_SHA384": "AES256-SHA384",
    "AES_256_CBC_SHA256": "AES256-SHA256",
    "AES_128_CBC_SHA": "AES128-SHA",
    "AES_256_CBC_SHA": "AES256-SHA",
    "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
    "AES_128_CCM": "AES128-CCM",
    "AES_256_CCM": "AES256-CCM",
}
_EXCHANGES: Final = {
    "ECDHE_ECDSA": "ECDHE-ECDSA-",
    "ECDHE_RSA": "ECDHE-RSA-",
    "DHE_RSA": "DHE-RSA-",
    "DHE_DSS": "DHE-DSS-",
    "RSA": "",
}
_OPENSSL_NAMES: Final = {
    f"TLS_{exchange}_WITH_{cipher}": f"{prefix}{name}"
    for exchange, prefix in _EXCHANGES.items()
    for cipher, name in _CIPHERS.items()
}


def openssl_name(suite: str) -> str:
    """The name of a suite for OpenSSL. Raises `ValueError` for one that nobody here knows.

    >>> openssl_name("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
    'ECDHE-RSA-AES128-GCM-SHA256'
    """
    if suite in TLS_1_3:
        return suite
    name = _OPENSSL_NAMES.get(suite, suite)
    if name not in _OPENSSL_NAMES.values():
        raise ValueError(f"{suite} is no cipher suite that is known here")
    return name


def openssl_names(suites: Iterable[str]) -> tuple[str, ...]:
    """All of them, in their order. Raises `ValueError`."""
    return tuple(dict.fromkeys(map(openssl_name, suites)))
