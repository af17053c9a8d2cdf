"""Transactions and producer ids."""

from __future__ import annotations

from barnabas.base.settings import HIGH, LIVE, LOW, NOT_BUILT, Int, Settings, Short, setting
from barnabas.base.settings.allowed import at_least
from barnabas.base.settings.units import DAY_MS, HOUR_MS, MIB, MINUTE_MS


class TransactionSettings(Settings, title="Transactions", importance=HIGH):
    """Transactions, and what is remembered about producers."""

    transaction_max_timeout_ms: Int = setting(
        "The longest timeout that a producer may ask for.",
        default=15 * MINUTE_MS,
        allowed=at_least(1),
    )
    transactional_id_expiration_ms: Int = setting(
        "After how long without use a transactional id is forgotten.",
        default=7 * DAY_MS,
        allowed=at_least(1),
    )
    transaction_state_log_replication_factor: Short = setting(
        "How many replicas the transaction topic has; a cluster with fewer nodes cannot create it.",
        default=3,
        allowed=at_least(1),
    )
    transaction_state_log_num_partitions: Int = setting(
        "How many partitions the transaction topic has; it must never change.", default=50, allowed=at_least(1)
    )
    transaction_state_log_min_isr: Int = setting(
        "How many replicas of the transaction topic must have a record.", default=2, allowed=at_least(1)
    )
    transaction_state_log_segment_bytes: Int = setting(
        "The segment size of the transaction topic; small segments load faster.", default=100 * MIB, allowed=at_least(1)
    )
    transaction_state_log_load_buffer_size: Int = setting(
        "How many bytes are read at a time when transactions are loaded.",
        default=5 * MIB,
        allowed=at_least(1),
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: Int = setting(
        "How often transactions that ran out of time are searched for.",
        default=10_000,
        allowed=at_least(1),
        importance=LOW,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: Int = setting(
        "How often transactional ids that nobody uses are searched for.",
        default=HOUR_MS,
        allowed=at_least(1),
        importance=LOW,
    )
    transaction_partition_verification_enable: bool = setting(
        "Whether a partition checks that a transaction includes it before it takes records.",
        default=True,
        importance=LOW,
        state=LIVE,
    )
    transaction_two_phase_commit_enable: bool = setting(
        "Whether producers may leave the end of a transaction to another system.",
        default=False,
        importance=LOW,
        state=NOT_BUILT,
    )
    add_partitions_to_txn_retry_backoff_ms: Int = setting(
        "How long a partition leader waits before it asks the coordinator again.", default=20, allowed=at_least(1)
    )
    add_partitions_to_txn_retry_backoff_max_ms: Int = setting(
        "How long in all a partition leader keeps asking the coordinator.", default=100, allowed=at_least(0)
    )
    producer_id_expiration_ms: Int = setting(
        "After how long without records a producer id is forgotten.",
        default=DAY_MS,
        allowed=at_least(1),
        importance=LOW,
        state=LIVE,
    )
    producer_id_expiration_check_interval_ms: Int = setting(
        "How often producer ids that nobody uses are searched for.",
        default=10 * MINUTE_MS,
        allowed=at_least(1),
        importance=LOW,
        internal=True,
    )
