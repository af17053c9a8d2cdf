"""The registry of requests: key, name, messages and versions of each, found by key.

The modules of messages are imported when they are first asked for; a client that never uses transactions never loads
their messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from importlib import import_module

from barnabas.wire.message import Listeners, Request, Response
from barnabas.wire.schema import Versions


class ApiKey(IntEnum):
    """The kinds of requests. The module of `FETCH` is `barnabas.wire.messages.fetch`, and so on for all."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92

    @property
    def camel_name(self) -> str:
        """As Kafka spells it: `DescribeLogDirs`."""
        return "".join(word.capitalize() for word in self.name.split("_"))


#: Keys of clusters that ran on ZooKeeper: declared to read what they wrote, never advertised.
ZOOKEEPER_ERA = frozenset(
    {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN}
)


@dataclass(frozen=True, slots=True)
class Api:
    """Everything that is known of one kind of request."""

    key: ApiKey
    request: type[Request]
    response: type[Response]

    @property
    def versions(self) -> Versions:
        """The versions that are declared, and that our clients can speak."""
        return self.request.VERSIONS

    @property
    def served(self) -> Versions:
        """The versions that a node answers."""
        return self.request.SERVED

    @property
    def listeners(self) -> Listeners:
        return self.request.LISTENERS

    def is_flexible(self, version: int) -> bool:
        return version in self.request.FLEXIBLE

    def request_header_version(self, version: int) -> int:
        """2 with tags, 1 without; 0, without client id, for the very first ControlledShutdown only."""
        if self.is_flexible(version):
            return 2
        return 0 if self.key is ApiKey.CONTROLLED_SHUTDOWN and version == 0 else 1

    def response_header_version(self, version: int) -> int:
        """1 with tags, 0 without.

        ApiVersions is always answered without: the client reads the header before it knows what the node chose.
        """
        return 1 if self.is_flexible(version) and self.key is not ApiKey.API_VERSIONS else 0


@cache
def api(key: int) -> Api:
    """The entry of `key`; `ValueError` if there is no such request."""
    api_key = ApiKey(key)
    module = import_module(f"barnabas.wire.messages.{api_key.name.lower()}")
    return Api(
        api_key, getattr(module, f"{api_key.camel_name}Request"), getattr(module, f"{api_key.camel_name}Response")
    )


def all_apis() -> list[Api]:
    """All entries, by key. Imports every module of messages."""
    return [api(key) for key in ApiKey]
