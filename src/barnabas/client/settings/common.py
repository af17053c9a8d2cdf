"""What producers, consumers and admins share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ssl import SSLContext
from typing import Any, ClassVar

from barnabas.base.sasl import mechanism_called
from barnabas.base.settings import (
    HIGH,
    LOW,
    NO_EFFECT,
    NOT_BUILT,
    GivenValue,
    Int,
    Long,
    Names,
    Password,
    Plugin,
    Settings,
    SettingsWarning,
    rule,
    setting,
)
from barnabas.base.settings.allowed import at_least, items, items_like, one_of, one_of_in_any_case
from barnabas.base.settings.security import SaslSettings, TlsSettings
from barnabas.base.settings.units import KIB, MINUTE_MS
from barnabas.client.settings.other_clients import HINTS
from barnabas.client.settings.plugins import REPORTERS

#: 0 to 65535.
_PORT = r"(?:[0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
BOOTSTRAP_SERVERS = items_like(rf"[^@/]+:{_PORT}", "each host:port, at least one", at_least_one=True)

# The first wait and the longest one of what is tried again with growing patience.
_WAITS = (
    ("reconnect_backoff_ms", "reconnect_backoff_max_ms"),
    ("retry_backoff_ms", "retry_backoff_max_ms"),
    ("socket_connection_setup_timeout_ms", "socket_connection_setup_timeout_max_ms"),
)


class ConnectionSettings(Settings, title="Connection"):
    """How a client finds brokers and stays connected."""

    bootstrap_servers: Names = setting(
        "Where to ask first: host:port. One broker that answers is enough.", allowed=BOOTSTRAP_SERVERS, importance=HIGH
    )
    client_id: str = setting("A name for this client, which brokers show in logs and use for quotas.", default="")
    client_dns_lookup: str = setting(
        "Whether all addresses of a host are tried, or the names behind the first list are looked up.",
        default="use_all_dns_ips",
        allowed=one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    )
    connections_max_idle_ms: Long = setting("After how much silence a connection is closed.", default=5 * MINUTE_MS)
    reconnect_backoff_ms: Long = setting(
        "How long to wait at first before connecting to the same broker again.",
        default=50,
        allowed=at_least(0),
        importance=LOW,
    )
    reconnect_backoff_max_ms: Long = setting(
        "How long to wait at most before connecting to the same broker again.",
        default=1000,
        allowed=at_least(0),
        importance=LOW,
    )
    retry_backoff_ms: Long = setting(
        "How long to wait at first before a failed request is sent again.",
        default=100,
        allowed=at_least(0),
        importance=LOW,
    )
    retry_backoff_max_ms: Long = setting(
        "How long to wait at most before a failed request is sent again.",
        default=1000,
        allowed=at_least(0),
        importance=LOW,
    )
    request_timeout_ms: Int = setting("How long to wait for a broker to answer.", default=30_000, allowed=at_least(0))
    socket_connection_setup_timeout_ms: Long = setting(
        "How long a connection may take to open at first.", default=10_000
    )
    socket_connection_setup_timeout_max_ms: Long = setting(
        "The longest that opening a connection may take after repeated failures.", default=30_000
    )
    send_buffer_bytes: Int = setting(
        "Size of the send buffer of a socket; -1 leaves it to the system, and so does not giving it.",
        default=128 * KIB,
        allowed=at_least(-1),
    )
    receive_buffer_bytes: Int = setting(
        "Size of the receive buffer of a socket; -1 leaves it to the system, and so does not giving it.",
        default=64 * KIB,
        allowed=at_least(-1),
    )
    metadata_max_age_ms: Long = setting(
        "After how long the list of brokers and partitions is asked for again.",
        default=5 * MINUTE_MS,
        allowed=at_least(0),
        importance=LOW,
    )
    metadata_recovery_strategy: str = setting(
        "What to do when no known broker answers: start again from the first list, or give up.",
        default="rebootstrap",
        allowed=one_of_in_any_case("rebootstrap", "none"),
        importance=LOW,
    )
    metadata_recovery_rebootstrap_trigger_ms: Long = setting(
        "How long the metadata may stay old before the client starts again from the first list.",
        default=5 * MINUTE_MS,
        allowed=at_least(0),
        importance=LOW,
    )
    config_providers: Names = setting(
        "Names of plug-ins that look values up elsewhere, such as in files or a vault.",
        default=(),
        allowed=items(),
        importance=LOW,
        state=NOT_BUILT,
    )


class ClientMetricsSettings(Settings, title="Metrics", importance=LOW):
    """How a client measures itself, and who is told."""

    metrics_num_samples: Int = setting("How many samples a rate is computed from.", default=2, allowed=at_least(1))
    metrics_sample_window_ms: Long = setting("How long one sample is.", default=30_000, allowed=at_least(0))
    metrics_recording_level: str = setting(
        "From which level on metrics are recorded; all that a client has are of the level INFO.",
        default="INFO",
        allowed=one_of("INFO", "DEBUG", "TRACE"),
    )
    metric_reporters: tuple[Plugin, ...] = setting(
        "Plug-ins that report metrics; jmx stands for Java's own and does nothing here.",
        default=("jmx",),
        builtin=REPORTERS,
        allowed=items(),
    )
    enable_metrics_push: bool = setting(
        "Whether metrics are pushed to the cluster when it asks for them.", default=False, state=NO_EFFECT
    )


class ClientSecuritySettings(TlsSettings, SaslSettings, title="Security"):
    """How a client proves who it is."""

    security_protocol: str = setting(
        "How connections are secured.",
        default="PLAINTEXT",
        allowed=one_of_in_any_case("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT"),
    )
    security_providers: str | None = setting(
        "Java classes that bring security algorithms.", default=None, importance=LOW, state=NOT_BUILT
    )
    ssl_cafile: str | None = setting(
        "A PEM file with the certificates that are trusted, in place of ssl.truststore.*.", default=None
    )
    ssl_certfile: str | None = setting(
        "A PEM file with the client's certificate and perhaps its key, in place of ssl.keystore.*.", default=None
    )
    ssl_keyfile: str | None = setting("A PEM file with the key of that certificate, if it is not in it.", default=None)
    ssl_password: Password | None = setting("The password of that key.", default=None)
    ssl_check_hostname: bool = setting(
        "Whether the certificate of a broker must name its host; as ssl.endpoint.identification.algorithm.",
        default=True,
    )
    ssl_ciphers: Names = setting("As ssl.cipher.suites.", default=(), allowed=items(), importance=LOW)
    ssl_context: Plugin | None = setting(
        "A context of Python's ssl, in place of all other settings of TLS.", default=None, importance=LOW
    )
    sasl_mechanism: str = setting("The mechanism that the client uses.", default="GSSAPI")
    sasl_plain_username: str | None = setting("The user of PLAIN or SCRAM, in place of sasl.jaas.config.", default=None)
    sasl_plain_password: Password | None = setting("The password of that user.", default=None)
    sasl_oauth_token_provider: Plugin | None = setting(
        "What gives tokens for OAUTHBEARER: a function, or an object with token().", default=None
    )
    sasl_oauthbearer_header_urlencode: bool = setting(
        "Whether client id and secret are URL-encoded in the header.", default=False, importance=LOW
    )


class ClientSettings(ConnectionSettings, ClientMetricsSettings, ClientSecuritySettings):
    """What every client has."""

    _hints: ClassVar[Mapping[str, str]] = HINTS

    @rule("security_protocol", "ssl_context")
    def _context_is_one(self) -> str | None:
        given = self.ssl_context
        return None if given is None or isinstance(given.target, SSLContext) else "it takes an object: ssl.SSLContext"

    @rule("ssl_certfile", "ssl_keystore_location", "ssl_keystore_key")
    def _one_key_is_given(self) -> str | None:
        return _one_of(self.ssl_certfile, self.ssl_keystore_location, self.ssl_keystore_key)

    @rule("ssl_cafile", "ssl_truststore_location", "ssl_truststore_certificates")
    def _one_trust_store_is_given(self) -> str | None:
        return _one_of(self.ssl_cafile, self.ssl_truststore_location, self.ssl_truststore_certificates)

    @rule("ssl_keyfile", "ssl_certfile")
    def _key_has_a_certificate(self) -> str | None:
        return "the key needs its certificate" if self.ssl_keyfile and not self.ssl_certfile else None

    @rule("security_protocol", "sasl_mechanism")
    def _mechanism_is_built(self) -> str | None:
        try:
            mechanism_called(self.sasl_mechanism if self.security_protocol.startswith("SASL_") else "PLAIN")
        except ValueError as problem:
            return str(problem)
        return None

    @classmethod
    def _adjust(cls, values: dict[str, Any], given: Mapping[str, GivenValue]) -> Iterator[SettingsWarning]:
        """A first wait that is longer than the longest one makes every wait that long."""
        yield from super()._adjust(values, given)
        for first, longest in _WAITS:
            if values[first] > values[longest]:
                values[longest] = values[first]
                yield SettingsWarning(
                    longest.replace("_", "."), f"raised to {values[first]}, so that it is not below the first wait"
                )


def _one_of(*ways: object) -> str | None:
    return "these say the same in different ways; give one of them" if len([*filter(None, ways)]) > 1 else None
