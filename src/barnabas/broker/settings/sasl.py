"""What the settings of SASL mean for each listener, and how they must fit together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

from barnabas.base.sasl import Mechanism, mechanism_called
from barnabas.base.sasl.jaas import JaasEntry, parse_jaas
from barnabas.base.settings import Password, rule
from barnabas.broker.settings.roles import RoleRules
from barnabas.broker.settings.security import BrokerSaslSettings


class SaslRules(RoleRules, BrokerSaslSettings):
    """Of a node some of whose listeners ask for SASL, or whose peers do."""

    if TYPE_CHECKING:

        def for_listener(self, listener: str) -> Self: ...

    def asks_for_sasl(self, listener: str) -> bool:
        return self.security_protocols.get(listener, "").startswith("SASL_")

    def mechanisms_of(self, listener: str) -> tuple[Mechanism, ...]:
        """What peers of a listener may use. Raises `ValueError` for people to read."""
        return tuple(map(mechanism_called, self.for_listener(listener).sasl_enabled_mechanisms))

    def mechanism_to(self, listener: str) -> Mechanism:
        """What this node uses on a listener of other nodes. Raises `ValueError` for people to read."""
        is_controller = listener in self.controller_listeners
        name = self.sasl_mechanism_controller_protocol if is_controller else self.sasl_mechanism_inter_broker_protocol
        return mechanism_called(name)

    def of_mechanism(self, listener: str, mechanism: Mechanism, name: str) -> Any:
        """The value of a setting that each mechanism of a listener may have for itself."""
        prefix = f"listener.name.{listener.lower()}"
        for prefixed in (f"{prefix}.{mechanism.lower()}.{name}", f"{prefix}.{name}"):
            if prefixed in self.__dict__["_prefixed"]:
                return self.__dict__["_prefixed"][prefixed]
        return self.value_of(name)

    def jaas_of(self, listener: str, mechanism: Mechanism) -> JaasEntry | None:
        """The login module for a mechanism. Raises `ValueError` for people to read."""
        given: Password | None = self.of_mechanism(listener, mechanism, "sasl.jaas.config")
        if given is None:
            return None
        name = f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
        try:
            entry = parse_jaas(given.reveal())
            entry.check_module(mechanism)
        except ValueError as problem:
            raise ValueError(f"{name}: {problem}") from None
        return entry

    @rule("listeners", "listener_security_protocol_map", "sasl_enabled_mechanisms")
    def _peers_can_authenticate(self) -> str | None:
        if self._listeners_are_told_of():
            return None
        try:
            return next(self._problems_of_listeners(), None)
        except ValueError as problem:
            return str(problem)

    def _listeners_are_told_of(self) -> bool:
        """Whether listeners or protocols cannot be read at all, which other rules say."""
        try:
            return not (self.endpoints and self.security_protocols)
        except ValueError:
            return True

    def _problems_of_listeners(self) -> Iterator[str]:
        for listener in [each.listener for each in self.endpoints if self.asks_for_sasl(each.listener)]:
            own, mechanisms = self.for_listener(listener), self.mechanisms_of(listener)
            if not mechanisms:
                yield f"{listener} asks for SASL, and no mechanism is enabled on it"
            for mechanism in mechanisms:
                entry = self.jaas_of(listener, mechanism)
                verifier = self.of_mechanism(listener, mechanism, "sasl.server.callback.handler.class")
                prefix = f"listener.name.{listener.lower()}.{mechanism.lower()}"
                if mechanism is Mechanism.PLAIN and verifier is None and (entry is None or not entry.users):
                    what = f'{prefix}.sasl.jaas.config with user_NAME="password"'
                    yield f"PLAIN on {listener} knows no users: give {what}"
                if mechanism is Mechanism.OAUTHBEARER and own.sasl_oauthbearer_jwks_endpoint_url is None:
                    yield (
                        f"OAUTHBEARER on {listener} has no keys to check tokens with: give "
                        f"listener.name.{listener.lower()}.sasl.oauthbearer.jwks.endpoint.url"
                    )

    @rule(
        "listener_security_protocol_map",
        "sasl_mechanism_inter_broker_protocol",
        "sasl_mechanism_controller_protocol",
        "sasl_enabled_mechanisms",
    )
    def _nodes_can_authenticate_to_each_other(self) -> str | None:
        if self._listeners_are_told_of():
            return None
        ways = [self.inter_broker_listener] if self.is_broker else []
        opened = {each.listener for each in self.endpoints}
        try:
            for listener in (*ways, *self.controller_listeners[:1]):
                if not self.asks_for_sasl(listener):
                    continue
                mechanism = self.mechanism_to(listener)
                if listener in opened and mechanism not in self.mechanisms_of(listener):
                    return f"nodes use {mechanism} on {listener}, where it is not enabled"
                problem = self._problem_of_login(listener, mechanism)
                if problem is not None:
                    return problem
        except ValueError as problem:
            return str(problem)
        return None

    def _problem_of_login(self, listener: str, mechanism: Mechanism) -> str | None:
        prefix = f"listener.name.{listener.lower()}.{mechanism.lower()}"
        entry = self.jaas_of(listener, mechanism)
        if mechanism is Mechanism.OAUTHBEARER:
            own = self.for_listener(listener)
            provider = self.of_mechanism(listener, mechanism, "sasl.login.callback.handler.class")
            if provider is None and own.sasl_oauthbearer_token_endpoint_url is None:
                return f"nodes have no token for {listener}: give sasl.oauthbearer.token.endpoint.url"
            return None
        if entry is None or not entry.options.get("username") or not entry.options.get("password"):
            return f"nodes cannot log in on {listener}: give {prefix}.sasl.jaas.config with username= and password="
        return None
