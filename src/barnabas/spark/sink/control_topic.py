"""The topic in which decisions are kept: one partition, compacted: it keeps the newest record of each stream."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError, BrokerError
from barnabas.spark.client_settings import settings_for
from barnabas.spark.sink.writing import WriteError

if TYPE_CHECKING:
    from barnabas import Admin

#: Times are the brokers' own, by which the age of transactions is told.
_CONFIGS: Final = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime", "segment.bytes": 16 << 20}

#: As topics have that Kafka itself cannot do without. Of fewer brokers, the cluster's own default counts.
_REPLICAS: Final = 3
#: A decision that one broker alone has may be lost with it.
_REPLICATED: Final = {"min.insync.replicas": 2}
_log: Final = logging.getLogger("barnabas.spark")

#: What this process knows to exist. Workers of Spark live on from task to task.
_known: Final[set[tuple[str, str]]] = set()


def new_admin(client: Mapping[str, str]) -> Admin:
    from barnabas import Admin
    from barnabas.client.settings import ADMIN_SETTINGS

    return Admin(settings_for(client, ADMIN_SETTINGS))


def ensure_control_topic(client: Mapping[str, str], topic: str) -> None:
    """Create it if it is not there."""
    place = (client.get("bootstrap.servers", ""), topic)
    if place in _known:
        return
    with new_admin(client) as admin:
        create_control_topic(admin, topic)
    _known.add(place)


def is_deleted(client: Mapping[str, str], topic: str) -> bool:
    """Whether it is gone, though this process knew it; it does not any more. False if nobody can tell."""
    _known.discard((client.get("bootstrap.servers", ""), topic))
    try:
        with new_admin(client) as admin:
            return not has_topic(admin, topic)
    except BarnabasError:
        return False


def create_control_topic(admin: Admin, topic: str) -> None:
    from barnabas import NewTopic

    try:
        if not has_topic(admin, topic):
            is_replicated = len(admin.describe_cluster().nodes) >= _REPLICAS
            replicas, configs = (_REPLICAS, _CONFIGS | _REPLICATED) if is_replicated else (-1, _CONFIGS)
            admin.create_topics([NewTopic(topic, 1, replicas, configs=configs)])
    except BarnabasError as error:
        if not (isinstance(error, BrokerError) and error.code is ErrorCode.TOPIC_ALREADY_EXISTS):
            raise _refused(topic, error) from error


def check_control_topic(admin: Admin, topic: str) -> None:
    """Raises if it would forget decisions. Who may not see its settings is believed to have made it well."""
    from barnabas.client.admin import ConfigResource, ConfigResourceType

    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    try:
        told = admin.describe_configs([resource], names=["cleanup.policy", "message.timestamp.type"])[resource]
    except BarnabasError as error:
        _log.debug("the settings of the control topic '%s' cannot be seen: %s", topic, error)
        return
    found = {name: entry.value for name, entry in told.items()}
    if found.get("cleanup.policy", "compact") != "compact":
        raise WriteError(
            f"delivery is exactly-once, and the control topic '{topic}' has cleanup.policy="
            f"{found['cleanup.policy']}: it would forget decisions. Set cleanup.policy=compact and"
            " message.timestamp.type=LogAppendTime on it, or name another with the option controlTopic"
        )
    if found.get("message.timestamp.type", "LogAppendTime") != "LogAppendTime":
        _log.warning(
            "The control topic '%s' has message.timestamp.type=%s: how old a transaction is, is told by the clock of "
            "the driver, which may be off. Set it to LogAppendTime.",
            topic,
            found["message.timestamp.type"],
        )


def has_topic(admin: Admin, topic: str) -> bool:
    try:
        admin.describe_topics([topic])
    except BrokerError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return False
    return True


def _refused(topic: str, error: BarnabasError) -> WriteError:
    return WriteError(
        f"delivery is exactly-once, which needs the control topic '{topic}', and it cannot be"
        f" found or created: {str(error).rstrip('.')}. Create it with one partition, cleanup.policy=compact and"
        " message.timestamp.type=LogAppendTime, allow Read, Write and Describe on it, or name another with the option"
        " controlTopic"
    )
