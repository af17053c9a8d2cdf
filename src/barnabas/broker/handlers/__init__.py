"""What the node answers, one module per API: validate, call the part that knows, map the outcome.

Each has its `API_KEY` and `handle(services, context, request)`. An API is advertised because its module is named here.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Final

NAMES: Final = (
    "alter_configs",
    "api_versions",
    "consumer_group_describe",
    "consumer_group_heartbeat",
    "create_acls",
    "create_delegation_token",
    "create_partitions",
    "create_topics",
    "delete_acls",
    "delete_groups",
    "delete_records",
    "delete_topics",
    "describe_acls",
    "describe_cluster",
    "describe_configs",
    "describe_delegation_token",
    "describe_groups",
    "describe_log_dirs",
    "describe_producers",
    "describe_quorum",
    "describe_topic_partitions",
    "expire_delegation_token",
    "fetch",
    "find_coordinator",
    "heartbeat",
    "incremental_alter_configs",
    "init_producer_id",
    "join_group",
    "leave_group",
    "list_config_resources",
    "list_groups",
    "list_offsets",
    "list_partition_reassignments",
    "metadata",
    "offset_commit",
    "offset_delete",
    "offset_fetch",
    "offset_for_leader_epoch",
    "produce",
    "renew_delegation_token",
    "sync_group",
    "unregister_broker",
)


def all_handlers() -> list[ModuleType]:
    return [import_module(f"barnabas.broker.handlers.{name}") for name in NAMES]
