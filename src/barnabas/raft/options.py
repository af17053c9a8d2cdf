"""The times and sizes of a quorum, under the names that Kafka has for them (`controller.quorum.*`)."""

from __future__ import annotations

from dataclasses import dataclass, fields

from barnabas.base.errors import SettingsError


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumOptions:
    """Every replica of a quorum should have the same.

    - `election_timeout_ms`: how long a voter without a leader waits before it asks for votes, and a candidate for
      them: at least so long, at most twice.
    - `fetch_timeout_ms`: how long a follower hears nothing from its leader before it asks for votes. A leader that
      hears from no majority for one and a half times as long resigns.
    - `election_backoff_max_ms`: how long a candidate waits at most after it has lost.
    - `request_timeout_ms`, `retry_backoff_ms`: when a request counts as lost, and how soon it is tried again.
    - `fetch_max_wait_ms`: how long a leader keeps the Fetch of a follower that has everything.
    """

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 8 * 1024 * 1024
    fetch_snapshot_max_bytes: int = 8 * 1024 * 1024

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not isinstance(value, int) or value < 1:
                raise SettingsError(f"{each.name} = {value!r}: it must be a whole number of at least 1")
        if self.fetch_max_wait_ms >= self.fetch_timeout_ms:
            raise SettingsError(
                f"fetch_max_wait_ms = {self.fetch_max_wait_ms}: it must be below fetch_timeout_ms, which is "
                f"{self.fetch_timeout_ms}, or followers of an idle leader take it for dead"
            )

    @property
    def check_quorum_ms(self) -> int:
        """How long a leader goes on without hearing from a majority."""
        return self.fetch_timeout_ms * 3 // 2
