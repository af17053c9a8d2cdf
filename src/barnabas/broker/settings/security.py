"""Encryption, authentication and authorization. What is not built is refused."""

from __future__ import annotations

from barnabas.base.errors import SettingsError
from barnabas.base.settings import (
    HIGH,
    LIVE,
    LOW,
    MEDIUM,
    NOT_BUILT,
    READ_AT_START,
    Double,
    Int,
    Long,
    Names,
    Password,
    Plugin,
    Settings,
    Short,
    again,
    rule,
    setting,
)
from barnabas.base.settings.allowed import at_least, items, one_of
from barnabas.base.settings.security import SaslSettings, TlsSettings
from barnabas.base.settings.units import DAY_MS, HOUR_MS, KIB
from barnabas.metadata.standard_authorizer import parse_super_users


class BrokerTlsSettings(TlsSettings, title="TLS", importance=LOW):
    """TLS on the side of the broker."""

    ssl_keystore_type: str = again(default="JKS", state=LIVE)
    ssl_truststore_type: str = again(default="JKS", state=LIVE)
    ssl_keystore_location: str | None = again(default=None, importance=MEDIUM, state=LIVE)
    ssl_keystore_password: Password | None = again(default=None, importance=MEDIUM, state=LIVE)
    ssl_key_password: Password | None = again(default=None, importance=MEDIUM, state=LIVE)
    ssl_keystore_key: Password | None = again(default=None, importance=MEDIUM, state=LIVE)
    ssl_keystore_certificate_chain: Password | None = again(default=None, importance=MEDIUM, state=LIVE)
    ssl_truststore_location: str | None = again(default=None, importance=MEDIUM, state=LIVE)
    ssl_truststore_password: Password | None = again(default=None, importance=MEDIUM, state=LIVE)
    ssl_truststore_certificates: Password | None = again(default=None, importance=MEDIUM, state=LIVE)
    ssl_keymanager_algorithm: str = again(default="SunX509", importance=MEDIUM)
    ssl_trustmanager_algorithm: str = again(default="PKIX", importance=MEDIUM)
    ssl_cipher_suites: Names = again(default=(), importance=MEDIUM, state=LIVE)
    ssl_enabled_protocols: Names = again(default=("TLSv1.2", "TLSv1.3"), state=LIVE)
    ssl_endpoint_identification_algorithm: str = again(default="https", state=LIVE)

    ssl_client_auth: str = setting(
        "Whether clients must, may or need not show a certificate.",
        default="none",
        allowed=one_of("required", "requested", "none"),
        importance=MEDIUM,
        state=LIVE,
    )
    ssl_principal_mapping_rules: str = setting(
        "How the name in a certificate becomes the name of a principal.", default="DEFAULT"
    )
    ssl_allow_dn_changes: bool = setting(
        "Whether a new certificate may carry another name than the one before.", default=False
    )
    ssl_allow_san_changes: bool = setting(
        "Whether a new certificate may carry other alternative names than the one before.", default=False
    )


class BrokerSaslSettings(SaslSettings, title="SASL"):
    """SASL on the side of the broker."""

    sasl_jaas_config: Password | None = again(default=None, state=LIVE)
    sasl_kerberos_kinit_cmd: str = again(default="/usr/bin/kinit", importance=MEDIUM)
    sasl_kerberos_ticket_renew_window_factor: Double = again(default=0.8, importance=MEDIUM)
    sasl_kerberos_ticket_renew_jitter: Double = again(default=0.05, importance=MEDIUM)
    sasl_kerberos_min_time_before_relogin: Long = again(default=60_000, importance=MEDIUM)
    sasl_login_refresh_window_factor: Double = again(default=0.8, importance=MEDIUM, allowed=None, state=LIVE)
    sasl_login_refresh_window_jitter: Double = again(default=0.05, importance=MEDIUM, allowed=None, state=LIVE)
    sasl_login_refresh_min_period_seconds: Short = again(default=60, importance=MEDIUM, allowed=None, state=LIVE)
    sasl_login_refresh_buffer_seconds: Short = again(default=300, importance=MEDIUM, allowed=None, state=LIVE)

    sasl_enabled_mechanisms: Names = setting(
        "The mechanisms that clients may use.", default=("GSSAPI",), allowed=items(), state=LIVE
    )
    sasl_mechanism_inter_broker_protocol: str = setting("The mechanism between brokers.", default="GSSAPI", state=LIVE)
    sasl_mechanism_controller_protocol: str = setting(
        "The mechanism between brokers and controllers.", default="GSSAPI", importance=HIGH
    )
    sasl_server_callback_handler_class: Plugin | None = setting(
        "A plug-in that says for PLAIN whether a user and a password belong together.",
        default=None,
        builtin={"oauthbearer": "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"},
    )
    sasl_server_max_receive_size: Int = setting(
        "The largest message that is accepted before a client is authenticated.", default=512 * KIB
    )
    sasl_kerberos_principal_to_local_rules: Names = setting(
        "How the name of a Kerberos principal becomes a short name.",
        default=("DEFAULT",),
        allowed=items(),
        state=NOT_BUILT,
    )
    connections_max_reauth_ms: Long = setting(
        "After how long clients must authenticate again; 0 for never. For one listener it changes at run time.",
        default=0,
        state=LIVE,
    )


class AuthorizationSettings(Settings, title="Authorization", state=NOT_BUILT):
    """Who may do what."""

    authorizer_class_name: str = setting(
        "Who decides who may do what: org.apache.kafka.metadata.authorizer.StandardAuthorizer, or a plug-in, "
        "package.module:Class; empty allows everything.",
        default="",
        importance=LOW,
        state=READ_AT_START,
    )
    principal_builder_class: Plugin = setting(
        "The plug-in that tells from a connection who is behind it.",
        default="default",
        builtin={"default": "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"},
    )
    security_providers: str | None = setting(
        "Java classes that bring security algorithms.", default=None, importance=LOW
    )
    delegation_token_secret_key: Password | None = setting(
        "The secret with which delegation tokens are signed, the same on all nodes.", default=None, state=READ_AT_START
    )
    delegation_token_max_lifetime_ms: Long = setting(
        "How long a delegation token can be renewed.", default=7 * DAY_MS, allowed=at_least(1), state=READ_AT_START
    )
    delegation_token_expiry_time_ms: Long = setting(
        "How long a delegation token is valid before it must be renewed.",
        default=DAY_MS,
        allowed=at_least(1),
        state=READ_AT_START,
    )
    delegation_token_expiry_check_interval_ms: Long = setting(
        "How often expired delegation tokens are removed.",
        default=HOUR_MS,
        allowed=at_least(1),
        importance=LOW,
        state=READ_AT_START,
    )
    super_users: str = setting(
        "Principals that may do everything, separated by semicolons: User:ann;User:bob.",
        default="",
        state=READ_AT_START,
    )
    allow_everyone_if_no_acl_found: bool = setting(
        "Whether what no rule mentions is open to all.", default=False, state=READ_AT_START
    )

    @rule("super_users")
    def _super_users_are_principals(self) -> str | None:
        try:
            parse_super_users(self.super_users)
        except SettingsError as problem:
            return str(problem)
        return None
