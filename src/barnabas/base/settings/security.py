"""TLS and SASL, which brokers and clients share. What is not built is refused."""

from __future__ import annotations

from barnabas.base.settings import (
    HIGH,
    LOW,
    MEDIUM,
    NO_EFFECT,
    NOT_BUILT,
    Double,
    Int,
    Long,
    Names,
    Password,
    Plugin,
    Settings,
    Short,
    setting,
)
from barnabas.base.settings.allowed import between, items, one_of_in_any_case
from barnabas.base.settings.units import HOUR_MS


class TlsSettings(Settings, title="TLS", importance=HIGH):
    """Keys, certificates and trust."""

    ssl_protocol: str = setting(
        "The version of TLS that Java prefers; here ssl.enabled.protocols decides, and the highest is preferred.",
        default="TLSv1.3",
        importance=MEDIUM,
        state=NO_EFFECT,
    )
    ssl_enabled_protocols: Names = setting(
        "The versions of TLS that may be used: TLSv1.2, TLSv1.3 or both.",
        default=("TLSv1.2", "TLSv1.3"),
        allowed=items(),
        importance=MEDIUM,
    )
    ssl_cipher_suites: Names = setting(
        "The cipher suites that may be used, by Java's or OpenSSL's names; empty for those of the library.",
        default=(),
        allowed=items(),
        importance=LOW,
    )
    ssl_provider: str | None = setting("The Java security provider.", default=None, importance=MEDIUM, state=NO_EFFECT)
    ssl_keystore_type: str = setting("Format of the key store: PEM, PKCS12 or JKS.", default="JKS", importance=MEDIUM)
    ssl_keystore_location: str | None = setting("The file with the private key and its certificates.", default=None)
    ssl_keystore_password: Password | None = setting("The password of the key store.", default=None)
    ssl_key_password: Password | None = setting("The password of the private key.", default=None)
    ssl_keystore_key: Password | None = setting("The private key itself, in PEM form.", default=None)
    ssl_keystore_certificate_chain: Password | None = setting(
        "The certificates that belong to the private key, in PEM form.", default=None
    )
    ssl_truststore_type: str = setting(
        "Format of the trust store: PEM, PKCS12 or JKS.", default="JKS", importance=MEDIUM
    )
    ssl_truststore_location: str | None = setting("The file with the certificates that are trusted.", default=None)
    ssl_truststore_password: Password | None = setting("The password of the trust store.", default=None)
    ssl_truststore_certificates: Password | None = setting(
        "The certificates that are trusted, in PEM form.", default=None
    )
    ssl_keymanager_algorithm: str = setting(
        "The Java algorithm that picks keys.", default="SunX509", importance=LOW, state=NO_EFFECT
    )
    ssl_trustmanager_algorithm: str = setting(
        "The Java algorithm that checks trust.", default="PKIX", importance=LOW, state=NO_EFFECT
    )
    ssl_endpoint_identification_algorithm: str = setting(
        "How the name of a host is checked against its certificate; empty for not at all.",
        default="https",
        importance=LOW,
    )
    ssl_secure_random_implementation: str | None = setting(
        "The Java source of random numbers.", default=None, importance=LOW, state=NO_EFFECT
    )
    ssl_engine_factory_class: Plugin | None = setting(
        "A plug-in that makes the TLS connection.", default=None, importance=LOW, state=NOT_BUILT
    )


class SaslSettings(Settings, title="SASL"):
    """Names, passwords, tickets and tokens."""

    sasl_jaas_config: Password | None = setting(
        "User name, password and module, in the form of Java's JAAS files.", default=None
    )
    sasl_client_callback_handler_class: Plugin | None = setting(
        "A plug-in that answers for the client during authentication.", default=None, state=NOT_BUILT
    )
    sasl_login_callback_handler_class: Plugin | None = setting(
        "A plug-in that obtains tokens: a function, or an object with token().",
        default=None,
        builtin={"oauthbearer": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"},
    )
    sasl_login_class: Plugin | None = setting("A plug-in that logs in.", default=None, state=NOT_BUILT)
    sasl_login_connect_timeout_ms: Int | None = setting(
        "How long connecting to the token service may take.", default=None, importance=LOW
    )
    sasl_login_read_timeout_ms: Int | None = setting(
        "How long the token service may take to answer.", default=None, importance=LOW
    )
    sasl_login_retry_backoff_ms: Long = setting("How long a failed login waits at first.", default=100, importance=LOW)
    sasl_login_retry_backoff_max_ms: Long = setting(
        "How long a failed login waits at most.", default=10_000, importance=LOW
    )
    sasl_login_refresh_window_factor: Double = setting(
        "After which share of its life a credential is renewed.", default=0.8, allowed=between(0.5, 1.0), importance=LOW
    )
    sasl_login_refresh_window_jitter: Double = setting(
        "By which share the time of renewal varies.", default=0.05, allowed=between(0.0, 0.25), importance=LOW
    )
    sasl_login_refresh_min_period_seconds: Short = setting(
        "How long a credential is kept at least before it is renewed.",
        default=60,
        allowed=between(0, 900),
        importance=LOW,
    )
    sasl_login_refresh_buffer_seconds: Short = setting(
        "How long before its end a credential is renewed at the latest.",
        default=300,
        allowed=between(0, 3600),
        importance=LOW,
    )
    sasl_kerberos_service_name: str | None = setting("The Kerberos name of the brokers.", default=None, state=NOT_BUILT)
    sasl_kerberos_kinit_cmd: str = setting(
        "The command that obtains a Kerberos ticket.", default="/usr/bin/kinit", importance=LOW, state=NOT_BUILT
    )
    sasl_kerberos_ticket_renew_window_factor: Double = setting(
        "After which share of its life a ticket is renewed.", default=0.8, importance=LOW, state=NOT_BUILT
    )
    sasl_kerberos_ticket_renew_jitter: Double = setting(
        "By which share the time of renewal of a ticket varies.", default=0.05, importance=LOW, state=NOT_BUILT
    )
    sasl_kerberos_min_time_before_relogin: Long = setting(
        "How long to wait at least between two Kerberos logins.", default=60_000, importance=LOW, state=NOT_BUILT
    )
    sasl_oauthbearer_jwt_retriever_class: Plugin = setting(
        "A plug-in that obtains tokens.",
        default="default",
        builtin={"default": "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever"},
        state=NOT_BUILT,
    )
    sasl_oauthbearer_jwt_validator_class: Plugin = setting(
        "A plug-in that checks tokens.",
        default="default",
        builtin={"default": "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator"},
        state=NOT_BUILT,
    )
    sasl_oauthbearer_scope: str | None = setting("The scope that is asked for.", default=None)
    sasl_oauthbearer_client_credentials_client_id: str | None = setting(
        "The client id for the token service.", default=None
    )
    sasl_oauthbearer_client_credentials_client_secret: Password | None = setting(
        "The client secret for the token service.", default=None
    )
    sasl_oauthbearer_assertion_algorithm: str = setting(
        "The algorithm that signs assertions.",
        default="RS256",
        allowed=one_of_in_any_case("ES256", "RS256"),
        state=NOT_BUILT,
    )
    sasl_oauthbearer_assertion_claim_aud: str | None = setting(
        "The audience that an assertion states.", default=None, state=NOT_BUILT
    )
    sasl_oauthbearer_assertion_claim_exp_seconds: Int = setting(
        "How long an assertion is valid.", default=300, allowed=between(0, 86_400), importance=LOW, state=NOT_BUILT
    )
    sasl_oauthbearer_assertion_claim_iss: str | None = setting(
        "The issuer that an assertion states.", default=None, state=NOT_BUILT
    )
    sasl_oauthbearer_assertion_claim_jti_include: bool = setting(
        "Whether an assertion carries a unique id.", default=False, state=NOT_BUILT
    )
    sasl_oauthbearer_assertion_claim_nbf_seconds: Int = setting(
        "From how long before its making an assertion is valid.",
        default=60,
        allowed=between(0, 3600),
        importance=LOW,
        state=NOT_BUILT,
    )
    sasl_oauthbearer_assertion_claim_sub: str | None = setting(
        "The subject that an assertion states.", default=None, state=NOT_BUILT
    )
    sasl_oauthbearer_assertion_file: str | None = setting(
        "A file with a finished assertion.", default=None, state=NOT_BUILT
    )
    sasl_oauthbearer_assertion_private_key_file: str | None = setting(
        "A file with the key that signs assertions.", default=None, state=NOT_BUILT
    )
    sasl_oauthbearer_assertion_private_key_passphrase: Password | None = setting(
        "The password of that key.", default=None, state=NOT_BUILT
    )
    sasl_oauthbearer_assertion_template_file: str | None = setting(
        "A file with headers and claims that assertions start from.", default=None, state=NOT_BUILT
    )
    sasl_oauthbearer_scope_claim_name: str = setting(
        "The name of the claim that holds the scope.", default="scope", importance=LOW
    )
    sasl_oauthbearer_sub_claim_name: str = setting(
        "The name of the claim that holds the subject.", default="sub", importance=LOW
    )
    sasl_oauthbearer_token_endpoint_url: str | None = setting("Where tokens are obtained.", default=None)
    sasl_oauthbearer_jwks_endpoint_url: str | None = setting(
        "Where the keys lie that tokens are checked with.", default=None
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: Long = setting(
        "How often those keys are loaded again.", default=HOUR_MS, importance=LOW
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: Long = setting(
        "How long a failed load of keys waits at first.", default=100, importance=LOW
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: Long = setting(
        "How long a failed load of keys waits at most.", default=10_000, importance=LOW
    )
    sasl_oauthbearer_clock_skew_seconds: Int = setting(
        "By how much clocks may differ when a token is checked.", default=30, importance=LOW
    )
    sasl_oauthbearer_expected_audience: Names = setting(
        "Audiences of which a token must name one.", default=(), allowed=items(), importance=HIGH
    )
    sasl_oauthbearer_expected_issuer: str | None = setting(
        "The issuer that a token must name.", default=None, importance=HIGH
    )
