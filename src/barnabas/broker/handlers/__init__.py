"""What the node answers, one module per API: validate, call the part that knows, map the outcome.

Each has its `API_KEY` and `handle(services, context, request)`. A broker or a controller advertises an API because its
module is named here.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Final

BROKER: Final = (
    "add_offsets_to_txn",
    "add_partitions_to_txn",
    "alter_client_quotas",
    "alter_configs",
    "alter_user_scram_credentials",
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
    "describe_client_quotas",
    "describe_cluster",
    "describe_configs",
    "describe_delegation_token",
    "describe_groups",
    "describe_log_dirs",
    "describe_producers",
    "describe_quorum",
    "describe_topic_partitions",
    "describe_transactions",
    "describe_user_scram_credentials",
    "elect_leaders",
    "end_txn",
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
    "list_transactions",
    "metadata",
    "offset_commit",
    "offset_delete",
    "offset_fetch",
    "offset_for_leader_epoch",
    "produce",
    "renew_delegation_token",
    "sasl_authenticate",
    "sasl_handshake",
    "sync_group",
    "txn_offset_commit",
    "unregister_broker",
    "update_features",
    "write_txn_markers",
)


#: On the controllers' listener.
CONTROLLER: Final = (
    "allocate_producer_ids",
    "alter_client_quotas",
    "alter_configs",
    "alter_partition",
    "alter_user_scram_credentials",
    "api_versions",
    "assign_replicas_to_dirs",
    "begin_quorum_epoch",
    "broker_heartbeat",
    "broker_registration",
    "controller_registration",
    "create_acls",
    "create_delegation_token",
    "create_partitions",
    "create_topics",
    "delete_acls",
    "delete_topics",
    "describe_acls",
    "describe_cluster",
    "describe_configs",
    "describe_delegation_token",
    "describe_quorum",
    "describe_user_scram_credentials",
    "elect_leaders",
    "end_quorum_epoch",
    "envelope",
    "expire_delegation_token",
    "fetch_metadata",
    "fetch_snapshot",
    "incremental_alter_configs",
    "list_partition_reassignments",
    "renew_delegation_token",
    "sasl_authenticate",
    "sasl_handshake",
    "unregister_broker",
    "update_features",
    "update_raft_voter",
    "vote",
)


def broker_handlers() -> list[ModuleType]:
    return [_handler(name) for name in BROKER]


def controller_handlers() -> list[ModuleType]:
    return [_handler(name) for name in CONTROLLER]


def _handler(name: str) -> ModuleType:
    return import_module(f"barnabas.broker.handlers.{name}")
