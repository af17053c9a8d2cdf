"""The settings that groups live by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupCoordinatorConfig:
    """Of all groups of a node."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    offset_metadata_max_chars: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    retention_check_interval_ms: int = 600_000
