"""From the settings of a client to how its connections are secured."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from barnabas.base.errors import SettingsError
from barnabas.base.runtime import SystemClock
from barnabas.base.sasl import Mechanism, mechanism_called
from barnabas.base.sasl.jaas import parse_jaas
from barnabas.base.sasl.scram import TOKEN_AUTH
from barnabas.net.sasl_client import PasswordLogin, SaslLogin, TokenLogin, provider_of
from barnabas.net.security import ChannelSecurity
from barnabas.net.tls.contexts import GivenContext, TlsContexts
from barnabas.net.tls.dialing import ClientTls
from barnabas.net.tls.options import PEM, Store, TlsOptions, tls_options

if TYPE_CHECKING:
    from barnabas.client.settings import ClientSettings


def security_of(settings: ClientSettings, randomness: Random) -> ChannelSecurity:
    """Raises `SettingsError` where something is missing, or a key or certificate cannot be used."""
    protocol = settings.security_protocol
    login = _login(settings, randomness) if protocol.startswith("SASL_") else None
    return ChannelSecurity(login, _tls(settings) if protocol.endswith("SSL") else None)


def _tls(settings: ClientSettings) -> ClientTls:
    if settings.ssl_context is not None:
        return ClientTls(GivenContext(settings.ssl_context.target))
    return ClientTls(TlsContexts(client_tls_options(settings), has_server=False))


def client_tls_options(settings: ClientSettings) -> TlsOptions:
    """Kafka's settings, or those of other Python clients in their place."""
    options = tls_options(settings)
    keys, trusted = options.keystore, options.truststore
    if settings.ssl_cafile is not None:
        trusted = Store(type=PEM, location=settings.ssl_cafile)
    password = settings.ssl_password or settings.ssl_key_password
    if settings.ssl_certfile is not None:
        keys = Store(
            type=PEM,
            location=settings.ssl_certfile,
            key_location=settings.ssl_keyfile,
            key_password=None if password is None else password.reveal(),
        )
    return replace(
        options,
        keystore=keys,
        truststore=trusted,
        cipher_suites=settings.ssl_ciphers or options.cipher_suites,
        checks_host=options.checks_host and settings.ssl_check_hostname,
    )


def _login(settings: ClientSettings, randomness: Random) -> SaslLogin:
    try:
        mechanism = mechanism_called(settings.sasl_mechanism)
        if mechanism is Mechanism.OAUTHBEARER:
            return _token_login(settings, randomness)
        return _password_login(settings, mechanism, randomness)
    except ValueError as problem:
        raise SettingsError(f"sasl.mechanism={settings.sasl_mechanism}: {problem}") from None


def _password_login(settings: ClientSettings, mechanism: Mechanism, randomness: Random) -> SaslLogin:
    user, password = settings.sasl_plain_username, settings.sasl_plain_password
    is_token = False
    if user is None and settings.sasl_jaas_config is not None:
        entry = parse_jaas(settings.sasl_jaas_config.reveal())
        entry.check_module(mechanism)
        user = entry.options.get("username")
        secret = entry.options.get("password")
        is_token = entry.options.get(TOKEN_AUTH, "").lower() == "true"
    else:
        secret = None if password is None else password.reveal()
    if not user or secret is None:
        raise ValueError("a user and a password are needed: sasl.jaas.config, or sasl.plain.username and …password")
    return PasswordLogin(mechanism, user, secret, randomness, is_token)


def _token_login(settings: ClientSettings, randomness: Random) -> SaslLogin:
    provider = settings.sasl_oauth_token_provider or settings.sasl_login_callback_handler_class
    if provider is not None and provider.name != "oauthbearer":
        given = provider.resolve({})
        return TokenLogin(provider_of(given() if isinstance(given, type) else given))
    if settings.sasl_oauthbearer_token_endpoint_url is None:
        raise ValueError("a token is needed: sasl.oauthbearer.token.endpoint.url, or sasl_oauth_token_provider")
    from barnabas.net.oidc import IssuedTokens
    from barnabas.net.oidc_options import client_credentials, renewal_times

    credentials = client_credentials(settings, is_url_encoded=settings.sasl_oauthbearer_header_urlencode)
    return TokenLogin(IssuedTokens(credentials, renewal_times(settings), SystemClock(), randomness))
