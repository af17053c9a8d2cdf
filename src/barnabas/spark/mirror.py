"""A streaming query's progress, shown as the offsets of a consumer group.

Spark keeps its progress in its checkpoint, and that is what counts. Tools that show lag look at consumer groups. The
group is a mirror: nothing reads from it, and if it cannot be written, the query goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from barnabas.spark.core.positions import Positions

log = logging.getLogger(__name__)

#: After a failure, so that a coordinator that does not answer costs the query a moment now and then, not at each batch.
PAUSE_AFTER_FAILURE_MS: Final = 10_000


class Mirror:
    """Commits positions to a group, when they have changed."""

    def __init__(self, group_id: str, commit: Callable[[str, Positions], None], *, now_ms: Callable[[], float]) -> None:
        self._group_id = group_id
        self._commit = commit
        self._now_ms = now_ms
        self._shown: Positions = {}
        self._paused_until_ms = 0.0
        self._told: str | None = None

    def show(self, positions: Positions) -> None:
        """Make the group's offsets these. Never raises: what fails is warned about, once per cause."""
        changed = {partition: offset for partition, offset in positions.items() if self._shown.get(partition) != offset}
        if not changed or self._now_ms() < self._paused_until_ms:
            return
        try:
            self._commit(self._group_id, changed)
        except Exception as error:
            self._paused_until_ms = self._now_ms() + PAUSE_AFTER_FAILURE_MS
            cause = f"{type(error).__name__}: {error}"
            if cause != self._told:
                log.warning(
                    "the progress of the query could not be shown in consumer group %r (%s); the query goes on, since "
                    "its checkpoint holds its progress. Does a consumer use the group?",
                    self._group_id,
                    cause,
                )
            self._told = cause
        else:
            self._shown.update(changed)
            self._told = None
