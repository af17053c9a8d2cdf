"""How the fetches of a session are numbered: by the id that the broker gave it, and an epoch that rises with each.

A session begins with a full fetch, epoch 0. If the answer names a session, each further fetch carries the next epoch.
Whatever goes wrong, the next fetch is a full one again; if it carries the id of the old session, the broker ends that.
"""

from __future__ import annotations

from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.wire.messages.fetch import FetchResponse

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MAX_EPOCH: Final = 2**31 - 1


def next_epoch(epoch: int) -> int:
    return 1 if epoch == MAX_EPOCH else epoch + 1


class FetchSessionEpoch:
    """The id and the epoch of the next fetch to one broker, as the one who fetches keeps them."""

    __slots__ = ("epoch", "id")

    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH

    @property
    def is_open(self) -> bool:
        """Whether the broker keeps a session for us, as far as we know."""
        return self.id != NO_SESSION

    @property
    def is_full(self) -> bool:
        """Whether the next fetch must name all partitions."""
        return self.epoch == INITIAL_EPOCH

    def begin_anew(self) -> None:
        """The next fetch is a full one: whether the broker saw the last one, or how it took it, is not known."""
        self.epoch = INITIAL_EPOCH

    def refused(self, error_code: int) -> None:
        """The broker answered with an error as a whole."""
        if error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH

    def confused(self, response: FetchResponse, *, was_full: bool) -> None:
        """An answer does not fit the question. A throttled full fetch is answered with nothing, and no session."""
        if was_full and not response.responses and response.throttle_time_ms > 0:
            self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH

    def answered(self, session_id: int, *, was_full: bool) -> None:
        """All was well; the answer names the session that goes on."""
        if session_id == NO_SESSION:
            self.id, self.epoch = NO_SESSION, INITIAL_EPOCH
        elif was_full:
            self.id, self.epoch = session_id, next_epoch(INITIAL_EPOCH)
        else:
            self.epoch = next_epoch(self.epoch)

    def close(self) -> int:
        """The id of the session that is to be ended, or 0; from here on there is none."""
        session_id, self.id, self.epoch = self.id, NO_SESSION, INITIAL_EPOCH
        return session_id
