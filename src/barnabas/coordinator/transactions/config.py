"""The settings that transactions live by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionCoordinatorConfig:
    """Of all transactional ids of a node."""

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 7 * 24 * 3_600_000
    abort_timed_out_interval_ms: int = 10_000
    remove_expired_interval_ms: int = 3_600_000
    #: The level of the feature transaction.version.
    transaction_version: int = 2
