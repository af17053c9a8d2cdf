"""What is replicated: a dictionary, and which requests it has seen lately."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

REMEMBERED_REQUESTS = 10_000


class KeyValueStore:
    """Commands are JSON. A client that hears nothing sends its request again, under the same id, to whoever leads then;
    the second time it changes nothing."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._seen: dict[str, None] = {}

    def apply(self, command: bytes) -> None:
        request = json.loads(command)
        if request["id"] not in self._seen:
            self.values[request["key"]] = request["value"]
            self._seen[request["id"]] = None
            if len(self._seen) > REMEMBERED_REQUESTS:
                del self._seen[next(iter(self._seen))]

    def snapshot(self) -> Iterable[bytes]:
        yield json.dumps(list(self._seen)).encode()
        for item in self.values.items():
            yield json.dumps(item).encode()

    def restore(self, values: Iterable[bytes]) -> None:
        seen, *items = (json.loads(each) for each in values)
        self._seen = dict.fromkeys(seen)
        self.values = dict(items)
