"""TLS of a node: on each listener that has it, and on the ways to other nodes, which are those to their listeners.

A listener and the way to listeners of its name have the same settings: `listener.name.<name>.ssl.*` before `ssl.*`.
Keys and certificates are read at the start and again when a file or a setting has changed; one that cannot be used is
told and left alone, and what was there before stays in force.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from barnabas.base.errors import SettingsError
from barnabas.base.log_context import logger
from barnabas.broker.settings import BrokerSettings
from barnabas.net.tls.contexts import TlsContexts
from barnabas.net.tls.dialing import ClientTls
from barnabas.net.tls.distinguished_names import alternative_names, subject_name
from barnabas.net.tls.listening import ListenerTls
from barnabas.net.tls.options import TlsOptions, tls_options
from barnabas.net.tls.principal_mapping import PrincipalMapper
from barnabas.net.tls.stores import load_key

_log = logger("barnabas.broker")

#: As which the listener for metrics has settings of its own.
METRICS_LISTENER: Final = "METRICS"
TLS_PROTOCOLS: Final = ("SSL", "SASL_SSL")
#: How often files are looked at.
_LOOK_S: Final = 2.0


class NodeTls:
    """See the module. Raises `SettingsError` that names the listener."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._contexts: dict[str, TlsContexts] = {}
        self._listeners: dict[str, ListenerTls] = {}
        #: What was told of a listener whose files cannot be used, so that it is told once.
        self._told: dict[str, str] = {}
        own = {each.listener for each in settings.endpoints}
        others = {settings.inter_broker_listener, *settings.controller_listeners[:1]}
        protocols = settings.security_protocols
        if (settings.metrics_listener or "").startswith("SSL://"):
            self._add(METRICS_LISTENER, has_server=True, talks_to_nodes=False)
        for name in sorted(own | others):
            if protocols.get(name) in TLS_PROTOCOLS:
                self._add(name, has_server=name in own, talks_to_nodes=name in others)

    def _add(self, name: str, *, has_server: bool, talks_to_nodes: bool) -> None:
        own = self._settings.for_listener(name)
        try:
            contexts = self._contexts[name] = TlsContexts(listener_options(self._settings, name), has_server=has_server)
            if has_server:
                self._listeners[name] = ListenerTls(contexts, PrincipalMapper(own.ssl_principal_mapping_rules))
            if has_server and talks_to_nodes:
                contexts.check_itself()
        except ValueError as problem:
            raise SettingsError(f"listener {name}: ssl.principal.mapping.rules: {problem}") from None
        except SettingsError as problem:
            raise SettingsError(f"listener {name}: {problem}") from None

    @property
    def is_used(self) -> bool:
        return bool(self._contexts)

    def of_listener(self, name: str) -> ListenerTls | None:
        """What a listener of this node has; None without TLS."""
        return self._listeners.get(name)

    def way_to(self, listener: str) -> ClientTls | None:
        """What connections to a listener of this name have; None without TLS."""
        contexts = self._contexts.get(listener)
        return None if contexts is None else ClientTls(contexts)

    def knows_peers(self, listener: str) -> bool:
        """Whether all who connect to a listener have shown a certificate that is trusted."""
        contexts = self._contexts.get(listener)
        return contexts is not None and contexts.options.client_auth == "required"

    # What changes

    def apply(self, settings: BrokerSettings) -> None:
        """Take settings that were changed while the node runs."""
        for name, contexts in self._contexts.items():
            options = listener_options(settings, name)
            if options != contexts.options:
                self._replace(name, options, settings)
        self._settings = settings

    def check(self, settings: BrokerSettings) -> None:
        """Whether such settings could be applied. Raises `SettingsError`."""
        for name, contexts in self._contexts.items():
            options = listener_options(settings, name)
            if options != contexts.options:
                self._tried(name, options, settings)

    def look_at_files(self) -> None:
        """Read those again that have changed."""
        for name, contexts in self._contexts.items():
            if contexts.has_stale_files:
                self._replace(name, contexts.options, self._settings)

    async def watch(self) -> None:
        """Look at the files for ever."""
        while self._contexts:
            await asyncio.sleep(_LOOK_S)
            self.look_at_files()

    def _replace(self, name: str, options: TlsOptions, settings: BrokerSettings) -> None:
        contexts = self._contexts[name]
        try:
            self._tried(name, options, settings)
            contexts.replace(options)
        except SettingsError as problem:
            # Half a file may be there while somebody writes it: it is tried again when it has changed again.
            if self._told.get(name) != str(problem):
                self._told[name] = str(problem)
                _log.error("listener %s keeps its certificates, the new ones cannot be used: %s", name, problem)
            return
        self._told.pop(name, None)
        _log.info("listener %s: keys and certificates were read again, new connections use them", name)

    def _tried(self, name: str, options: TlsOptions, settings: BrokerSettings) -> None:
        contexts = self._contexts[name]
        trial = TlsContexts(options, has_server=contexts.has_server)
        own = settings.for_listener(name)
        if contexts.has_server:
            _check_names(contexts, trial, may_change={
                "distinguished name": own.ssl_allow_dn_changes,
                "subject alternative names": own.ssl_allow_san_changes,
            })  # fmt: skip
            if name in (settings.inter_broker_listener, *settings.controller_listeners[:1]):
                trial.check_itself()


def listener_options(settings: BrokerSettings, name: str) -> TlsOptions:
    """What the settings say of a listener. With SASL a client has shown who it is by that: a certificate is asked for
    only where the listener says so for itself."""
    own = settings.for_listener(name)
    client_auth = own.ssl_client_auth
    prefixed = f"listener.name.{name.lower()}.ssl.client.auth"
    if settings.security_protocols.get(name) == "SASL_SSL" and not settings.is_given(prefixed):
        client_auth = "none"
    return tls_options(own, client_auth)


def _check_names(old: TlsContexts, new: TlsContexts, may_change: Mapping[str, bool]) -> None:
    """A listener that is somebody else from one moment to the next is a mistake more often than meant."""
    before, after = (load_key(each.options.keystore).chain[0] for each in (old, new))
    changed = {
        "distinguished name": subject_name(before) != subject_name(after),
        "subject alternative names": not alternative_names(before) <= alternative_names(after),
    }
    for what, has_changed in changed.items():
        if has_changed and not may_change[what]:
            setting = "ssl.allow.dn.changes" if what == "distinguished name" else "ssl.allow.san.changes"
            raise SettingsError(f"the {what} of the new certificate differ from the old; {setting}=true allows it")
