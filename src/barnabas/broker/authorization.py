"""The authorizer of a node: Kafka's StandardAuthorizer, a plug-in in Python, or none; and the log of what it decides.

`authorizer.class.name` takes the name of Kafka's class or that of a plug-in, `package.module:Class`. What the node asks
itself, within its process, nobody is asked about. Other nodes are asked like everybody else: brokers and controllers
need CLUSTER_ACTION on the cluster, and are best among `super.users`, since the rules are in the log that they fetch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError, SettingsError
from barnabas.base.settings import Plugin
from barnabas.base.settings.plugin_settings import PluginSettings
from barnabas.broker.context import RequestContext
from barnabas.broker.services import CommonServices
from barnabas.broker.settings import BrokerSettings
from barnabas.metadata.access_images import StandardAcl
from barnabas.metadata.authorizer import (
    CLUSTER_NAME,
    AclOperation,
    AclPermissionType,
    AuthorizableRequestContext,
    PatternType,
    Resource,
)
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.loader import MetadataLoader, MetadataUpdate
from barnabas.metadata.standard_authorizer import AclDecision, DefaultRule, StandardAuthorizer, parse_super_users
from barnabas.raft.types import LeaderAndEpoch

#: Of what was decided, and nothing else: denied at INFO, allowed at DEBUG.
AUTHORIZER_LOG: Final = "barnabas.authorizer"
KAFKAS_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

_log = logging.getLogger(AUTHORIZER_LOG)

_TYPE_NAMES: Final = {
    Resource.TOPIC: "Topic",
    Resource.GROUP: "Group",
    Resource.CLUSTER: "Cluster",
    Resource.TRANSACTIONAL_ID: "TransactionalId",
    Resource.DELEGATION_TOKEN: "DelegationToken",
    Resource.USER: "User",
}


class AuthorizerPlugin(Protocol):
    """What a plug-in has. It may have `configure(settings)`, called first with the settings of the node as they were
    given; `is_allowed_by_type(caller, operation, resource_type)`, for producers without a transactional id; and
    `close()`. What it raises denies."""

    def is_allowed(
        self,
        caller: AuthorizableRequestContext,
        operation: AclOperation,
        resource_type: Resource,
        resource_name: str,
    ) -> bool: ...


class AclAuthorizer:
    """Decides by the ACLs in the metadata log. Until `is_ready`, only about super users."""

    keeps_acls = True

    def __init__(self, rules: StandardAuthorizer) -> None:
        self._rules = rules
        self.is_ready: Callable[[], bool] = lambda: True
        self._was_ready = False

    def is_allowed(
        self,
        caller: AuthorizableRequestContext,
        operation: AclOperation,
        resource_type: Resource,
        resource_name: str,
        *,
        log_if_denied: bool = True,
        log_if_allowed: bool = True,
    ) -> bool:
        if caller.is_own:
            return True
        self._check_ready(caller.principal)
        asked = caller.principal, caller.client_host, operation, resource_type, resource_name
        is_allowed = self._rules.is_allowed(*asked)
        if is_allowed:
            if log_if_allowed and _log.isEnabledFor(logging.DEBUG):
                _log.debug("%s", told(caller, operation, resource_type, resource_name, self._rules.decide(*asked)))
        elif log_if_denied and _log.isEnabledFor(logging.INFO):
            _log.info("%s", told(caller, operation, resource_type, resource_name, self._rules.decide(*asked)))
        return is_allowed

    def is_allowed_by_type(
        self, caller: AuthorizableRequestContext, operation: AclOperation, resource_type: Resource
    ) -> bool:
        if caller.is_own:
            return True
        self._check_ready(caller.principal)
        return self._rules.is_allowed_by_type(caller.principal, caller.client_host, operation, resource_type)

    def _check_ready(self, principal: str) -> None:
        if self._was_ready or principal in self._rules.super_users:
            return
        self._was_ready = self.is_ready()
        if not self._was_ready:
            raise BrokerError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                "the rules are not loaded yet: until then only super.users are served",
            )

    def close(self) -> None:
        """Nothing is held."""

    # What the loader calls

    def begin(self, image: ClusterImage) -> None:
        self._rules.apply(image.acls, image.acls)

    def on_metadata_update(self, update: MetadataUpdate) -> None:
        self._rules.apply(update.image.acls, update.delta.acls_changed)

    def on_controller_change(self, leader: LeaderAndEpoch) -> None:
        """Nothing: it does not matter who leads."""


class PluginAuthorizer:
    """Asks a plug-in. It keeps its own rules, so there are none in the metadata log."""

    keeps_acls = False

    def __init__(self, name: str, plugin: Any) -> None:
        self._name = name
        self._plugin = plugin
        if not callable(getattr(plugin, "is_allowed", None)):
            raise SettingsError(
                f"authorizer.class.name: {name} has no method "
                "is_allowed(caller, operation, resource_type, resource_name)"
            )

    def is_allowed(
        self,
        caller: AuthorizableRequestContext,
        operation: AclOperation,
        resource_type: Resource,
        resource_name: str,
        *,
        log_if_denied: bool = True,
        log_if_allowed: bool = True,
    ) -> bool:
        if caller.is_own:
            return True
        is_allowed = self._asked(self._plugin.is_allowed, caller, operation, resource_type, resource_name)
        if log_if_allowed if is_allowed else log_if_denied:
            level = logging.DEBUG if is_allowed else logging.INFO
            if _log.isEnabledFor(level):
                _log.log(level, "%s", told(caller, operation, resource_type, resource_name, is_allowed, self._name))
        return is_allowed

    def is_allowed_by_type(
        self, caller: AuthorizableRequestContext, operation: AclOperation, resource_type: Resource
    ) -> bool:
        by_type = getattr(self._plugin, "is_allowed_by_type", None)
        return caller.is_own or (by_type is not None and self._asked(by_type, caller, operation, resource_type))

    def _asked(self, ask: Callable[..., object], *asked: object) -> bool:
        try:
            return bool(ask(*asked))
        except Exception:
            _log.exception("the authorizer %s failed, which denies", self._name)
            return False

    def close(self) -> None:
        close = getattr(self._plugin, "close", None)
        if close is not None:
            close()


def told(
    caller: AuthorizableRequestContext,
    operation: AclOperation,
    resource_type: Resource,
    resource_name: str,
    decision: AclDecision | bool,
    rule: str = "",
) -> str:
    """The line of Kafka's authorizer log."""
    is_allowed = decision if isinstance(decision, bool) else decision.is_allowed
    if isinstance(decision, AclDecision):
        by = decision.rule
        rule = str(by.value) if isinstance(by, DefaultRule) else f"MatchingAcl(acl={told_acl(by)})"
    api_key = getattr(caller, "api_key", None)
    return (
        f"Principal = {caller.principal} is {'Allowed' if is_allowed else 'Denied'} operation = {operation.name} "
        f"from host = {caller.client_host} on resource = {_TYPE_NAMES[resource_type]}:LITERAL:{resource_name} "
        f"for request = {'' if api_key is None else api_key.camel_name} with resourceRefCount = 1 "
        f"based on rule {rule}"
    )


def told_acl(acl: StandardAcl) -> str:
    return (
        f"StandardAcl(resourceType={Resource(acl.resource_type).name}, resourceName={acl.resource_name}, "
        f"patternType={PatternType(acl.pattern_type).name}, principal={acl.principal}, host={acl.host}, "
        f"operation={AclOperation(acl.operation).name}, permissionType={AclPermissionType(acl.permission_type).name})"
    )


NodeAuthorizer = AclAuthorizer | PluginAuthorizer


def make_authorizer(settings: BrokerSettings) -> NodeAuthorizer | None:
    """The authorizer that the settings name, if they name one; raises `SettingsError` if it cannot be had."""
    name = settings.authorizer_class_name
    if not name:
        return None
    if name == KAFKAS_AUTHORIZER:
        super_users = parse_super_users(settings.super_users)
        return AclAuthorizer(StandardAuthorizer(super_users, settings.allow_everyone_if_no_acl_found))
    try:
        plugin = Plugin(name).resolve({KAFKAS_AUTHORIZER: StandardAuthorizer})()
    except SettingsError as problem:
        raise SettingsError(f"authorizer.class.name: {problem}") from problem
    authorizer = PluginAuthorizer(name, plugin)
    configure = getattr(plugin, "configure", None)
    if configure is not None:
        configure(PluginSettings(settings))
    return authorizer


def follow(authorizer: NodeAuthorizer | None, loader: MetadataLoader, is_ready: Callable[[], bool]) -> None:
    """Have it go by what is committed from now on."""
    if isinstance(authorizer, AclAuthorizer):
        authorizer.is_ready = is_ready
        authorizer.begin(loader.publish_to(authorizer))


def check_cluster_action(services: CommonServices, context: RequestContext) -> None:
    """Only nodes of the cluster speak about its metadata log."""
    if not services.authorizer.is_allowed(context, AclOperation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
