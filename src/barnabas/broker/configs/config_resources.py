"""Settings that change while the node runs: what holds, where it comes from, and what may be changed.

From strong to weak: what a topic says for itself, what was set for this broker, what was set for all brokers, what
stands in the node's file, the default. The first two after the topic live in the metadata log and reach every node with
the image; a node applies them with `effective_settings`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import dropwhile
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError, SettingsError
from barnabas.base.log_context import logger
from barnabas.base.quotas import QuotaWindow
from barnabas.base.settings import InvalidSettingsError, Plugin, Setting, SettingState, Type, format_value
from barnabas.broker.configs.other_resources import OTHER_KINDS, check_other_resource
from barnabas.broker.settings import BROKER_SETTINGS, BrokerSettings, topic_defaults
from barnabas.metadata.authorizer import AuthorizableRequestContext
from barnabas.metadata.controller_apis import may_alter_configs
from barnabas.metadata.elections import MIN_ISR
from barnabas.metadata.image import ClusterImage, ConfigResource, ConfigResourceType
from barnabas.metadata.options import ConfigSource, ControllerOptions, TokenOptions, TopicDefault
from barnabas.storage.settings import TOPIC_SETTINGS, TopicSettings

if TYPE_CHECKING:
    from barnabas.broker.services import CommonServices

_log = logger("barnabas.broker")

#: Kafka changes these at run time; here they steer nothing, and scripts that set them must not fail.
_CHANGEABLE_WITHOUT_EFFECT: Final = (
    "background.threads",
    "follower.fetch.last.tiered.offset.enable",
    "follower.replication.throttled.rate",
    "group.consumer.assignment.interval.ms",
    "group.coordinator.cached.buffer.max.bytes",
    "group.share.assignment.interval.ms",
    "group.streams.assignment.interval.ms",
    "leader.replication.throttled.rate",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.threads",
    "log.local.retention.bytes",
    "log.local.retention.ms",
    "log.preallocate",
    "metric.reporters",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.fetch.max.wait.ms",
    "remote.list.offsets.request.timeout.ms",
    "remote.log.index.file.cache.total.size.bytes",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.copy.max.bytes.per.second",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.fetch.max.bytes.per.second",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    "share.coordinator.cached.buffer.max.bytes",
    "transaction.partition.verification.enable",
)
_ROLL: Final = ("log.roll.ms", "log.roll.hours")
_ROLL_JITTER: Final = ("log.roll.jitter.ms", "log.roll.jitter.hours")
_RETENTION: Final = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
_FLUSH: Final = ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
#: Settings that are told together, because they say one thing in several units.
_SAME_THING: Final = {name: names for names in (_ROLL, _ROLL_JITTER, _RETENTION) for name in names} | {
    _FLUSH[0]: _FLUSH
}
_SHOWN_CHARS: Final = 60
_SHOWN_NAMES: Final = 10
_KEPT_TOPIC_SETTINGS: Final = 100
_CORDONED: Final = "cordoned.log.dirs"
_REAUTHENTICATION: Final = "connections.max.reauth.ms"
_CORDONED_METADATA_VERSION: Final = 30


class Synonym(NamedTuple):
    """One place where a setting got a value, under the name that it has there."""

    name: str
    value: str | None
    source: ConfigSource


def declaration(name: str) -> Setting | None:
    """The declared broker setting behind a name, also one with the prefix of a listener."""
    return BrokerSettings._setting_for(name)


def is_changeable(name: str) -> bool:
    """Whether a broker takes on a new value of this setting while it runs. Unknown ones belong to plug-ins."""
    if name == _REAUTHENTICATION:
        return False  # of one listener it does
    setting = declaration(name)
    return setting is None or setting.state is SettingState.LIVE or setting.name in _CHANGEABLE_WITHOUT_EFFECT


def is_secret(name: str) -> bool:
    """Whether the value must not be shown. Nobody knows what an unknown setting holds."""
    setting = declaration(name)
    return setting is None or setting.secret


def effective_topic_settings(settings: BrokerSettings, image: ClusterImage, topic: str) -> TopicSettings:
    """What holds for a topic: the node's defaults, and over them what the topic says for itself."""
    return TopicSettings.load(topic_defaults(settings), dict(image.config(ConfigResourceType.TOPIC, topic)))


class TopicSettingsCache:
    """`effective_topic_settings` for a node that asks for many topics, of which most say the same for themselves."""

    def __init__(self) -> None:
        self._settings: BrokerSettings | None = None
        self._known: dict[tuple[tuple[str, str], ...], TopicSettings] = {}

    def find(self, settings: BrokerSettings, image: ClusterImage, topic: str) -> TopicSettings:
        if settings is not self._settings or len(self._known) > _KEPT_TOPIC_SETTINGS:
            self._settings = settings
            self._known.clear()
        own = tuple(image.config(ConfigResourceType.TOPIC, topic).items())
        found = self._known.get(own)
        if found is None:
            found = effective_topic_settings(settings, image, topic)
            if not found.warnings:  # which are told whenever they are read
                self._known[own] = found
        return found


def effective_settings(static: BrokerSettings, image: ClusterImage, node_id: int) -> BrokerSettings:
    """The settings of a node with what was set for it, and for all brokers, at run time.

    A value that does not go with the node's file (which may have changed since) is told and left out: a node must not
    fail to start for it.
    """
    changes = _live_changes(image, node_id)
    while changes:
        try:
            return static.with_live_changes(changes)
        except InvalidSettingsError as error:
            named = {name for problem in error.problems for name in problem.names}
            refused = named.intersection(changes) or set(changes)
            _log.warning("settings that were changed at run time are ignored: %s", error)
            changes = {name: value for name, value in changes.items() if name not in refused}
    return static


def tell_unused_min_isr(static: BrokerSettings, image: ClusterImage) -> None:
    """With ELR the number is the cluster's, so that one in a file does nothing, and somebody may rely on it."""
    of_cluster = image.config(ConfigResourceType.BROKER, "").get(MIN_ISR)
    if not image.features.is_elr_enabled or of_cluster is None or not static.is_given(MIN_ISR):
        return
    if static.min_insync_replicas != int(of_cluster):
        _log.warning(
            "%s=%d in the settings has no effect: with eligible leader replicas it is set for the whole cluster, where "
            "it is %s; change it with 'barnabas configs --alter --entity-type brokers --entity-default --add-config "
            "%s=%d'",
            MIN_ISR, static.min_insync_replicas, of_cluster, MIN_ISR, static.min_insync_replicas,
        )  # fmt: skip


def controller_options(
    static: BrokerSettings, cluster_id: str = "", image: ClusterImage | None = None
) -> ControllerOptions:
    """What the controller of this node must know; ask again when the settings of brokers have changed in the image."""
    image = image or ClusterImage()
    settings = effective_settings(static, image, static.node_id)
    return ControllerOptions(
        cluster_id=cluster_id,
        num_partitions=settings.num_partitions,
        default_replication_factor=settings.default_replication_factor,
        delete_topic_enable=settings.delete_topic_enable,
        topic_defaults=_resolved(topic_defaults(settings), static, image, static.node_id),
        broker_session_timeout_ms=settings.broker_session_timeout_ms,
        min_insync_replicas=static.min_insync_replicas,
        tokens=TokenOptions(
            None if static.delegation_token_secret_key is None else static.delegation_token_secret_key.reveal(),
            static.delegation_token_max_lifetime_ms,
            static.delegation_token_expiry_time_ms,
        ),
        quota_window=QuotaWindow(
            static.controller_quota_window_num, static.controller_quota_window_size_seconds * 1000
        ),
    )


def resolved_topic_defaults(static: BrokerSettings, image: ClusterImage, node_id: int) -> dict[str, TopicDefault]:
    """What topics get that say nothing, by the topic's setting, with where it comes from."""
    return _resolved(topic_defaults(effective_settings(static, image, node_id)), static, image, node_id)


def _resolved(
    values: Mapping[str, object], static: BrokerSettings, image: ClusterImage, node_id: int
) -> dict[str, TopicDefault]:
    resolved = {}
    for name, value in values.items():
        synonyms = broker_synonyms(static, image, node_id, TOPIC_SETTINGS[name].server_default or name)
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        resolved[name] = TopicDefault(format_value(value), source)
    return resolved


def broker_synonyms(static: BrokerSettings, image: ClusterImage, node_id: int, name: str) -> list[Synonym]:
    """All places where this broker setting has a value, the one that counts first.

    Where Kafka lets several settings say one thing (`log.retention.ms` and its minutes and hours), the weaker ones
    follow under their own names.
    """
    setting = BROKER_SETTINGS.get(name)
    weaker = () if setting is None else setting.dependents
    return _synonyms(static, image, node_id, (name, *weaker))


def told_synonyms(static: BrokerSettings, image: ClusterImage, node_id: int, name: str) -> list[Synonym]:
    """What DescribeConfigs tells of a broker setting: as Kafka does, nothing before the first under its own name."""
    told = _synonyms(static, image, node_id, _SAME_THING.get(name, (name,)))
    return list(dropwhile(lambda synonym: synonym.name != name, told))


def described(
    kind: ConfigResourceType, own: Mapping[str, str], static: BrokerSettings, image: ClusterImage, node_id: int
) -> Iterator[tuple[Setting, str | None, list[Synonym]]]:
    """What DescribeConfigs tells of a group or of client metrics: settings, values, and where they come from."""
    source = ConfigSource.GROUP if kind is ConfigResourceType.GROUP else ConfigSource.CLIENT_METRICS
    for name, setting in OTHER_KINDS[kind].registry.items():
        synonyms = [Synonym(name, own[name], source)] if name in own else []
        if setting.server_default is not None:
            synonyms += told_synonyms(static, image, node_id, setting.server_default)
        elif kind is ConfigResourceType.GROUP:
            synonyms.append(Synonym(name, setting.default_text, ConfigSource.DEFAULT))
        yield setting, synonyms[0].value if synonyms else setting.default_text, synonyms


def _synonyms(static: BrokerSettings, image: ClusterImage, node_id: int, names: Iterable[str]) -> list[Synonym]:
    found: list[Synonym] = []
    for name in names:
        found += _dynamic_synonyms(image, node_id, name)
        setting = BROKER_SETTINGS.get(name)
        if setting is None:
            if static.is_given(name):
                found.append(Synonym(name, None, ConfigSource.STATIC_BROKER))
            continue
        value = static.value_of(name)
        if value != setting.default or static.is_given(name):
            found.append(Synonym(name, _text(setting, value), ConfigSource.STATIC_BROKER))
        if setting.default is not None and not setting.required:
            found.append(Synonym(name, _text(setting, setting.default), ConfigSource.DEFAULT))
    # The default of a finer unit is null, so the coarser one counts; one that is set in the file beats all defaults.
    return sorted(found, key=lambda synonym: synonym.source)


def _dynamic_synonyms(image: ClusterImage, node_id: int, name: str) -> list[Synonym]:
    if not is_changeable(name):
        return []
    places = ((str(node_id), ConfigSource.DYNAMIC_BROKER), ("", ConfigSource.DYNAMIC_DEFAULT_BROKER))
    return [
        Synonym(name, None if is_secret(name) else value, source)
        for broker, source in places
        if (value := image.config(ConfigResourceType.BROKER, broker).get(name)) is not None
    ]


def _text(setting: Setting, value: object) -> str | None:
    """As Kafka's tools show it: of a plug-in that comes with us, the Java class that it stands for."""
    if value is None or setting.secret:
        return None
    if isinstance(value, Plugin):
        return setting.value_type.builtin.get(value.name, value.name)
    return format_value(value)


def _live_changes(image: ClusterImage, node_id: int) -> dict[str, object]:
    stored = {**image.config(ConfigResourceType.BROKER, ""), **image.config(ConfigResourceType.BROKER, str(node_id))}
    return {name: value for name, value in stored.items() if _is_live(name)}


def _is_live(name: str) -> bool:
    setting = declaration(name)
    return setting is not None and setting.state is SettingState.LIVE


class BrokerRules:
    """Which changes of broker settings are accepted. Invalid ones are invalid requests, as in Kafka."""

    def __init__(self, static: BrokerSettings, node_id: int) -> None:
        self._static = static
        self._node_id = node_id

    def is_list(self, name: str) -> bool:
        setting = declaration(name)
        return setting is not None and setting.type is Type.LIST

    def default_value(self, name: str) -> str:
        setting = declaration(name)
        return "" if setting is None else format_value(self._static.value_of(setting.name) or ())

    def check(self, broker: str, changes: Mapping[str, str | None], image: ClusterImage) -> None:
        node_id = int(broker) if broker else self._node_id
        given = {name: value for name, value in changes.items() if value is not None}
        for name in given:
            self._check_changeable(broker, name, image)
        live = {name: value for name, value in given.items() if _is_live(name)}
        current = {name: value for name, value in _live_changes(image, node_id).items() if name not in changes}
        try:
            for name, value in given.items():
                setting = declaration(name)
                if setting is not None and name not in live:
                    _convert(setting, value)
            # Beside values that are refused already, new ones must still be possible.
            usable = effective_settings(self._static, image, node_id)
            kept = {name: value for name, value in current.items() if usable.is_given(name)}
            self._static.with_live_changes({**kept, **live})
        except InvalidSettingsError as error:
            raise BrokerError(ErrorCode.INVALID_REQUEST, str(error)) from None

    def check_other(self, resource: ConfigResource, configs: Mapping[str, str]) -> None:
        check_other_resource(resource, configs, self._static)

    def _check_changeable(self, broker: str, name: str, image: ClusterImage) -> None:
        setting = declaration(name)
        if name == _REAUTHENTICATION:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"{name} changes per listener while the broker runs: write listener.name.NAME. before it",
            )
        if setting is not None and not is_changeable(name):
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"{name} is {setting.state.value}, so it cannot be changed while the broker runs",
            )
        if _is_of_tls(setting) and not (broker and name.startswith("listener.name.")):
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"{name}: keys and certificates change per broker and listener while the broker runs: name the broker, "
                "and write listener.name.NAME. before it",
            )
        if _is_of_sasl(setting) and not broker:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"{name} is changed for one broker at a time while it runs: name the broker"
            )
        if name == _CORDONED and not broker:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"{name} differs from broker to broker, so it cannot be set for all at once"
            )
        if name == _CORDONED and (image.features.metadata_version or 0) < _CORDONED_METADATA_VERSION:
            raise BrokerError(
                ErrorCode.INVALID_CONFIG,
                f"{name} needs metadata.version {_CORDONED_METADATA_VERSION}, which the cluster does not have",
            )


def _convert(setting: Setting, value: str) -> None:
    try:
        setting.convert(value)
    except ValueError as reason:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"{setting.name} = {value!r}: the value {reason}; allowed: {setting.allowed_text}",
        ) from None


def warn_of_no_effect(resource: ConfigResource, names: Iterable[str]) -> None:
    """Say of settings that were just changed, and kept, which of them nothing here follows."""
    find = TOPIC_SETTINGS.get if resource.type == ConfigResourceType.TOPIC else declaration
    idle = sorted(name for name in names if resource.type in OTHER_KINDS or _is_idle(find(name)))
    if idle:
        what = f"{ConfigResourceType(resource.type).name.lower()} {resource.name[:_SHOWN_CHARS]!r}"
        shown = ", ".join(name[:_SHOWN_CHARS] for name in idle[:_SHOWN_NAMES])
        _log.warning("%s: kept, but nothing here follows it: %s", what, shown)


def _is_idle(setting: Setting | None) -> bool:
    return setting is not None and setting.state in (SettingState.NOT_BUILT, SettingState.NO_EFFECT)


def why_not_here(
    services: CommonServices,
    caller: AuthorizableRequestContext,
    resource: ConfigResource,
    changes: Mapping[str, str | None],
) -> str | None:
    """Why this node does not take changes of a resource to the controller: only a broker knows what it can take on."""
    if (
        resource.type != ConfigResourceType.BROKER
        or not resource.name.isdecimal()
        or not may_alter_configs(services.authorizer, caller, resource)
    ):
        return None
    if resource.name == str(services.node_id):
        return _security_complaint(services, changes)
    return f"this is broker {services.node_id}: ask broker {resource.name} itself to change its settings"


def _security_complaint(services: CommonServices, changes: Mapping[str, str | None]) -> str | None:
    """Whether keys, certificates and mechanisms that are set now can be used: only this node can read its files."""
    concerned = {
        name: value
        for name, value in changes.items()
        if _is_live(name) and (_is_of_tls(declaration(name)) or _is_of_sasl(declaration(name)))
    }
    if services.tls is None or services.sasl is None or not concerned:
        return None
    wanted = _live_changes(services.metadata.image, services.node_id) | concerned
    given = {name: value for name, value in wanted.items() if value is not None}
    try:
        settings = services.settings.as_loaded.with_live_changes(given)
        services.tls.check(settings)
        services.sasl.check(settings)
    except InvalidSettingsError:
        return None  # the controller says so
    except SettingsError as problem:
        return str(problem)
    return None


def _is_of_tls(setting: Setting | None) -> bool:
    return setting is not None and setting.name.startswith("ssl.")


def _is_of_sasl(setting: Setting | None) -> bool:
    return setting is not None and (setting.name.startswith("sasl.") or setting.name == _REAUTHENTICATION)
