"""What the settings of SASL mean for a node: whom its listeners let in, and what it shows to other nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any, Final

from barnabas.base.errors import SettingsError, known
from barnabas.base.log_context import logger
from barnabas.base.runtime import Runtime
from barnabas.base.sasl import Authenticated, Mechanism, SaslClient, SaslServer
from barnabas.base.sasl.jwt import JwtValidator
from barnabas.base.sasl.oauthbearer import OAuthBearerServer
from barnabas.base.sasl.plain import PlainServer, Verify, verify_among
from barnabas.base.sasl.scram import MIN_ITERATIONS, ScramCredential, ScramLogin, ScramServer
from barnabas.base.sasl.tokens import token_hmac, token_password
from barnabas.base.settings import Password
from barnabas.broker.settings import BrokerSettings
from barnabas.metadata.access_images import ScramCredentialData, ScramUser
from barnabas.metadata.image import ClusterImage
from barnabas.net.oidc import IssuedTokens, IssuerKeys
from barnabas.net.oidc_options import client_credentials, key_retries, renewal_times, token_rules
from barnabas.net.sasl_client import PasswordLogin, SaslLogin, TokenLogin, new_nonce, provider_of
from barnabas.net.sasl_server import SaslListener

_log = logger("barnabas.broker")

_DECOY_KEY_BYTES: Final = 32
_SALT_BYTES: Final = 16
_KEPT_TOKENS: Final = 1000

#: SCRAM users that the node was formatted with.
Bootstrap = Callable[[], Mapping[ScramUser, ScramCredentialData]]


class SaslParts:
    """Makes what listeners and channels of a node need. `image` tells what the metadata log says at the moment.

    As long as that says nothing at all, as in a quorum that has not elected its first leader, the SCRAM users of the
    formatting count: or controllers that speak SCRAM could never elect one.
    """

    def __init__(
        self, settings: BrokerSettings, runtime: Runtime, image: Callable[[], ClusterImage], bootstrap: Bootstrap
    ) -> None:
        self._settings = settings
        self._runtime = runtime
        self._image = image
        self._bootstrap = bootstrap
        self._keys: dict[str, IssuerKeys] = {}
        self._validators: dict[str, JwtValidator] = {}
        self._decoy_key: bytes | None = None
        self._tokens: dict[tuple[str, Mechanism], ScramCredential] = {}
        self._listeners: dict[str, SaslListener] = {}
        self._logins: dict[str, _Login] = {}

    @property
    def is_used(self) -> bool:
        return bool(self._listeners or self._logins)

    async def start(self) -> None:
        """Load what tokens are checked with. Raises a `BarnabasError` if there is nothing: then nobody may come in."""
        settings = self._settings
        for name in [each.listener for each in settings.endpoints if settings.asks_for_sasl(each.listener)]:
            if Mechanism.OAUTHBEARER not in settings.mechanisms_of(name):
                continue
            own = settings.for_listener(name)
            keys = self._keys[name] = IssuerKeys(
                known(own.sasl_oauthbearer_jwks_endpoint_url, "a rule of the settings asks for it"),
                token_rules(own),
                own.sasl_oauthbearer_jwks_endpoint_refresh_ms,
                key_retries(own),
            )
            self._validators[name] = await keys.start()

    async def stop(self) -> None:
        for keys in self._keys.values():
            await keys.stop()

    def listener(self, name: str) -> SaslListener | None:
        """How a listener has peers show who they are; None if it does not."""
        if not self._settings.asks_for_sasl(name):
            return None
        made = self._listeners[name] = SaslListener({}, self._runtime.clock)
        self._fill(name, made)
        return made

    def _fill(self, name: str, listener: SaslListener) -> None:
        settings = self._settings
        mechanisms = settings.mechanisms_of(name)
        listener.mechanisms = {mechanism: self._server_side(name, mechanism) for mechanism in mechanisms}
        listener.max_reauth_ms = {
            each: settings.of_mechanism(name, each, "connections.max.reauth.ms") for each in mechanisms
        }

    def login_to(self, name: str) -> SaslLogin | None:
        """What this node shows to another one on a listener; None if that does not ask. It follows the settings."""
        if not self._settings.asks_for_sasl(name):
            return None
        if name not in self._logins:
            self._logins[name] = _Login(self._new_login(name), self._shown(name))
        return self._logins[name]

    # What changes

    def apply(self, settings: BrokerSettings) -> None:
        """Take settings that were changed while the node runs; connections that are open stay as they are."""
        self._settings = settings
        for name, listener in self._listeners.items():
            self._fill(name, listener)
        for name, login in self._logins.items():
            if login.shown != (shown := self._shown(name)):
                login.exchange(self._new_login(name), shown)

    def check(self, settings: BrokerSettings) -> None:
        """Whether such settings could be applied. Raises `SettingsError`."""
        for name in self._listeners:
            if Mechanism.OAUTHBEARER in settings.mechanisms_of(name) and name not in self._validators:
                raise SettingsError(
                    f"listener {name}: OAUTHBEARER cannot be enabled while the broker runs, since its keys are loaded "
                    "at the start"
                )

    def _shown(self, name: str) -> tuple[object, ...]:
        """All of the settings that a login follows."""
        settings = self._settings
        mechanism, own = settings.mechanism_to(name), settings.for_listener(name)
        jaas: Password | None = settings.of_mechanism(name, mechanism, "sasl.jaas.config")
        return mechanism, None if jaas is None else jaas.reveal(), renewal_times(own)

    def _new_login(self, name: str) -> SaslLogin:
        settings = self._settings
        mechanism = settings.mechanism_to(name)
        if mechanism is Mechanism.OAUTHBEARER:
            return self._token_login(name)
        options = known(settings.jaas_of(name, mechanism), "a rule of the settings asks for it").options
        return PasswordLogin(mechanism, options["username"], options["password"], self._runtime.randomness)

    def _token_login(self, name: str) -> SaslLogin:
        settings, runtime = self._settings, self._runtime
        provider = settings.of_mechanism(name, Mechanism.OAUTHBEARER, "sasl.login.callback.handler.class")
        if provider is not None and provider.name != "oauthbearer":
            given = provider.resolve({})
            return TokenLogin(provider_of(given() if isinstance(given, type) else given))
        own = settings.for_listener(name)
        jaas = settings.of_mechanism(name, Mechanism.OAUTHBEARER, "sasl.jaas.config")
        credentials = client_credentials(own, jaas=None if jaas is None else jaas.reveal())
        return TokenLogin(IssuedTokens(credentials, renewal_times(own), runtime.clock, runtime.randomness))

    def _server_side(self, listener: str, mechanism: Mechanism) -> Callable[[], SaslServer]:
        if mechanism is Mechanism.PLAIN:
            return partial(PlainServer, self._verifier(listener))
        if mechanism is Mechanism.OAUTHBEARER:
            validator, clock = self._validators[listener], self._runtime.clock
            return lambda: OAuthBearerServer(lambda token: validator.validate(token, clock.now_ms()))
        return partial(self._scram, mechanism)

    def _verifier(self, listener: str) -> Verify:
        settings = self._settings
        plugin = settings.of_mechanism(listener, Mechanism.PLAIN, "sasl.server.callback.handler.class")
        if plugin is None:
            entry = known(settings.jaas_of(listener, Mechanism.PLAIN), "a rule of the settings asks for it")
            return verify_among(entry.users)
        return _verify_by(plugin.resolve({}))

    # SCRAM

    def _scram(self, mechanism: Mechanism) -> ScramServer:
        randomness = self._runtime.randomness
        if self._decoy_key is None:
            self._decoy_key = randomness.randbytes(_DECOY_KEY_BYTES)
        nonce = new_nonce(randomness)
        return ScramServer(mechanism, partial(self._find, mechanism), nonce, self._decoy_key)

    def _find(self, mechanism: Mechanism, user: str, is_token: bool) -> ScramLogin | None:
        image = self._image()
        if is_token:
            return self._find_token(image, mechanism, user)
        key = ScramUser(user, mechanism.number)
        credential = image.scram.get(key)
        if credential is None and image.offset < 0:
            credential = self._formatted.get(key)
        return None if credential is None else ScramLogin(credential, Authenticated(user))

    @cached_property
    def _formatted(self) -> Mapping[ScramUser, ScramCredentialData]:
        return self._bootstrap()

    def _find_token(self, image: ClusterImage, mechanism: Mechanism, token_id: str) -> ScramLogin | None:
        secret_key, token = self._settings.delegation_token_secret_key, image.delegation_tokens.get(token_id)
        if secret_key is None or token is None:
            return None
        ends_ms = min(token.expiration_timestamp_ms, token.max_timestamp_ms)
        if ends_ms <= self._runtime.clock.now_ms():
            return None
        key = (token_id, mechanism)
        credential = self._tokens.get(key)
        if credential is None:
            password = token_password(token_hmac(secret_key.reveal(), token_id))
            salt = self._runtime.randomness.randbytes(_SALT_BYTES)
            while len(self._tokens) >= _KEPT_TOKENS:
                del self._tokens[next(iter(self._tokens))]
            credential = self._tokens[key] = ScramCredential.of_password(password, mechanism, salt, MIN_ITERATIONS)
        owner = token.owner.partition(":")[2]
        return ScramLogin(credential, Authenticated(owner, expires_at_ms=ends_ms, is_token=True))


class _Login:
    """A `SaslLogin` that may be exchanged for another."""

    def __init__(self, login: SaslLogin, shown: tuple[object, ...]) -> None:
        self._login = login
        #: What it was made of.
        self.shown = shown

    def exchange(self, login: SaslLogin, shown: tuple[object, ...]) -> None:
        self._login, self.shown = login, shown

    @property
    def mechanism(self) -> Mechanism:
        return self._login.mechanism

    async def new_client(self) -> SaslClient:
        return await self._login.new_client()

    def __repr__(self) -> str:
        return repr(self._login)


def _verify_by(plugin: Any) -> Verify:
    """A function of user and password, or a class whose objects have such a `verify`."""
    if isinstance(plugin, type):
        plugin = plugin()
    verify = getattr(plugin, "verify", plugin)
    if not callable(verify):
        raise SettingsError("sasl.server.callback.handler.class must name a function of user and password")

    def checked(user: str, password: str) -> bool:
        try:
            return verify(user, password) is True
        except Exception:
            # Without what it says: a password may be in it.
            _log.error("the plug-in of sasl.server.callback.handler.class failed; the user is refused")
            return False

    return checked
