"""The settings of topics: checking what is asked for, and what holds in the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.settings import InvalidSettingsError, Type
from barnabas.metadata.options import ConfigSource, ControllerOptions, TopicDefault
from barnabas.storage.settings import TOPIC_SETTINGS, TopicSettings


class EffectiveConfig(NamedTuple):
    """One setting of a topic as it holds: the value as text, and where it comes from."""

    name: str
    value: str
    source: ConfigSource


def check_topic_configs(topic: str, configs: Mapping[str, str], options: ControllerOptions) -> None:
    """Raise INVALID_CONFIG unless a topic can have all these settings together, over the defaults of its node."""
    if not configs:
        return  # the node has checked its defaults
    for name in configs:
        if name not in TOPIC_SETTINGS:
            near = TOPIC_SETTINGS.nearest(name)
            hint = f"; did you mean {near}?" if near else ""
            raise BrokerError(ErrorCode.INVALID_CONFIG, f"topic {topic}: no topic setting is called {name!r}{hint}")
    defaults = {name: default.value for name, default in options.topic_defaults.items()}
    try:
        TopicSettings.load(defaults, configs)
    except InvalidSettingsError as error:
        raise BrokerError(ErrorCode.INVALID_CONFIG, f"topic {topic}: {error}") from None


def effective_topic_configs(configs: Mapping[str, str], options: ControllerOptions) -> Iterator[EffectiveConfig]:
    """All settings of a topic with these own ones, by name."""
    for name in sorted(TOPIC_SETTINGS):
        if not TOPIC_SETTINGS[name].internal or name in configs:
            yield EffectiveConfig(name, *_effective(name, configs, options))


def _effective(name: str, configs: Mapping[str, str], options: ControllerOptions) -> TopicDefault:
    if name in configs:
        return TopicDefault(configs[name], ConfigSource.TOPIC)
    if name in options.topic_defaults:
        return options.topic_defaults[name]
    return TopicDefault(TOPIC_SETTINGS[name].default_text, ConfigSource.DEFAULT)


def is_topic_list(name: str) -> bool:
    """Whether items can be added to this setting and taken from it."""
    return name in TOPIC_SETTINGS and TOPIC_SETTINGS[name].type is Type.LIST


def topic_default_value(name: str, options: ControllerOptions) -> str:
    return _effective(name, {}, options).value
