"""What the settings of clients and nodes say about an issuer of tokens."""

from __future__ import annotations

from barnabas.base.sasl.jaas import parse_jaas
from barnabas.base.sasl.jwt import TokenRules
from barnabas.base.settings.security import SaslSettings
from barnabas.net.oidc import ClientCredentials, RenewalTimes, Retries


def token_rules(settings: SaslSettings) -> TokenRules:
    return TokenRules(
        settings.sasl_oauthbearer_expected_audience,
        settings.sasl_oauthbearer_expected_issuer,
        settings.sasl_oauthbearer_clock_skew_seconds,
        settings.sasl_oauthbearer_sub_claim_name,
        settings.sasl_oauthbearer_scope_claim_name,
    )


def key_retries(settings: SaslSettings) -> Retries:
    return Retries(
        backoff_ms=settings.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms,
        backoff_max_ms=settings.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms,
    )


def client_credentials(
    settings: SaslSettings, *, is_url_encoded: bool = False, jaas: str | None = None
) -> ClientCredentials:
    """The client id and secret, from settings of their own or, as before Kafka 4.1, from the options of the login
    module. Raises `ValueError` for people to read."""
    given = settings.sasl_jaas_config.reveal() if settings.sasl_jaas_config is not None and jaas is None else jaas
    options = parse_jaas(given).options if given is not None else {}
    secret = settings.sasl_oauthbearer_client_credentials_client_secret
    client_id = settings.sasl_oauthbearer_client_credentials_client_id or options.get("clientId")
    client_secret = options.get("clientSecret") if secret is None else secret.reveal()
    url = settings.sasl_oauthbearer_token_endpoint_url
    if url is None:
        raise ValueError("sasl.oauthbearer.token.endpoint.url is not given")
    if not url.startswith("file:") and (not client_id or not client_secret):
        raise ValueError("a client id and a client secret are needed: sasl.oauthbearer.client.credentials.client.id …")
    timeouts = (settings.sasl_login_connect_timeout_ms, settings.sasl_login_read_timeout_ms)
    retries = Retries(
        max((each for each in timeouts if each is not None), default=Retries().timeout_ms),
        settings.sasl_login_retry_backoff_ms,
        settings.sasl_login_retry_backoff_max_ms,
    )
    scope = settings.sasl_oauthbearer_scope or options.get("scope")
    return ClientCredentials(url, client_id or "", client_secret or "", scope, is_url_encoded, retries)


def renewal_times(settings: SaslSettings) -> RenewalTimes:
    return RenewalTimes(
        settings.sasl_login_refresh_window_factor,
        settings.sasl_login_refresh_window_jitter,
        settings.sasl_login_refresh_min_period_seconds,
        settings.sasl_login_refresh_buffer_seconds,
    )
