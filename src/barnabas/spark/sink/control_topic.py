"""The topic in which decisions are kept: one partition, compacted: it keeps the newest record of each stream."""

from __future__ import annotations

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

#: What this process knows to exist. Workers of Spark live on from task to task.
_known: Final[set[tuple[str, str]]] = set()


def new_admin(client: Mapping[str, str]) -> Admin:
    from barnabas import Admin
    from barnabas.client.settings import ADMIN_SETTINGS

    return Admin(settings_for(client, ADMIN_SETTINGS))


def ensure_control_topic(client: Mapping[str, str], topic: str) -> None:
    """Create it if it is not there, with as many replicas as the cluster gives a topic."""
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
            admin.create_topics([NewTopic(topic, 1, configs=_CONFIGS)])
    except BarnabasError as error:
        if not (isinstance(error, BrokerError) and error.code is ErrorCode.TOPIC_ALREADY_EXISTS):
            raise _refused(topic, error) from error


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
        f" found or created: {str(error).rstrip('.')}. Create it with one partition and cleanup.policy=compact, allow"
        " Read, Write and Describe on it, or name another with the option controlTopic"
    )
