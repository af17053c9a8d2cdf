"""Transactions are not built. Clients are refused; whoever runs the node is told who wanted them, once for each."""

from __future__ import annotations

import logging
from typing import Final

_log = logging.getLogger("barnabas.broker")

#: Told to clients wherever an answer has room for it.
NO_TRANSACTIONS: Final = "transactions are not served by this node: its transaction coordinator is not built"
#: More than that are not remembered, and so not told of.
MOST_TOLD: Final = 200
_SHOWN_CHARS: Final = 60


class RefusedTransactions:
    """Who was told of in the log of the node: by client id and transactional id."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()

    def tell(self, client_id: str | None, transactional_id: str) -> None:
        if len(self._told) >= MOST_TOLD:
            return
        # What is remembered is as short as what is shown: ids may have 32 KB each.
        who = (_shown(client_id), _shown(transactional_id))
        if who in self._told:
            return
        self._told.add(who)
        _log.warning("client %s wants to use the transactional id %s and is refused: %s", *who, NO_TRANSACTIONS)
        if len(self._told) == MOST_TOLD:
            _log.warning("%d clients wanted transactions; further ones are not told of", MOST_TOLD)


def _shown(text: str | None) -> str:
    return repr(text if text is None or len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…")
