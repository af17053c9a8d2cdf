"""Says what keeps a client from its work: the lines of `core/troubles.py`, in Python's logging.

Whoever knows of troubles is a `TroubleSource`. `look` is called when something may have changed, and by a timer in
between as long as there is any trouble.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from typing import Protocol

from barnabas.base.log_context import logger, speaking
from barnabas.base.runtime import Clock
from barnabas.client.core.metadata import Metadata, Node
from barnabas.client.core.troubles import Trouble, Troubles, topic_ended, topic_troubles
from barnabas.client.nodes import Nodes, failures_text
from barnabas.net.errors import address_text

_log = logger("barnabas.client")

_BOOTSTRAP = ("bootstrap",)


class TroubleSource(Protocol):
    """Who knows of troubles. Keys are pairs: of which kind it is, and what it concerns."""

    def troubles(self) -> Mapping[Hashable, Trouble]:
        """What is wrong now."""
        ...

    def trouble_ended(self, kind: str, name: object) -> str | None:
        """How a trouble ended; None if it has not, if nobody tries any more, or if it is another's."""
        ...


class Watch:
    """See the module."""

    def __init__(self, cluster: ClusterTroubles, clock: Clock, who: str) -> None:
        self._cluster = cluster
        self._clock = clock
        self._who = who
        self._sources: list[TroubleSource] = []
        self._troubles = Troubles()
        self._errors_at_ms: list[float] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_open = False

    def add(self, source: TroubleSource) -> None:
        self._sources.append(source)

    def start(self) -> None:
        self._is_open = True
        self.look()

    def close(self) -> None:
        self._is_open = False
        self._stop_timer()

    @contextlib.contextmanager
    def expecting_error(self, timeout_ms: float) -> Iterator[None]:
        """While somebody waits who will be told by an error, and so need not read a line right before it."""
        at_ms = self._clock.monotonic_ms() + timeout_ms
        self._errors_at_ms.append(at_ms)
        try:
            yield
        finally:
            self._errors_at_ms.remove(at_ms)

    def look_soon(self) -> None:
        """Something is about to be tried."""
        if self._is_open:
            asyncio.get_running_loop().call_soon(self.look)

    def look(self) -> None:
        """Something may have changed."""
        if not self._is_open:
            return
        present = self._present()
        now_ms = self._clock.monotonic_ms()
        lines = self._troubles.look(present, self._ended, now_ms, min(self._errors_at_ms, default=math.inf))
        for line in lines:
            # Its end is a warning as well: whoever was shown the beginning shall be shown that.
            with speaking(self._who):
                _log.warning("%s", line, extra={"trouble": line})
        self._stop_timer()
        wait_ms = self._troubles.next_look_in_ms(now_ms)
        if wait_ms < math.inf:
            self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self.look)

    def _present(self) -> Mapping[Hashable, Trouble]:
        found = dict(self._cluster.troubles())
        if _BOOTSTRAP in found:
            return found  # all else follows from that
        for source in self._sources:
            found.update(source.troubles())
        return found

    def _ended(self, key: Hashable) -> str | None:
        assert isinstance(key, tuple)
        kind, name = key if len(key) == 2 else (key[0], None)
        for source in (self._cluster, *self._sources):
            how = source.trouble_ended(kind, name)
            if how is not None:
                return how
        return None

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class ClusterTroubles:
    """Brokers that cannot be reached, and topics that cannot be used."""

    def __init__(self, metadata: Metadata, nodes: Nodes, setting: str) -> None:
        """`setting` names where the addresses of the first servers come from."""
        self._metadata = metadata
        self._nodes = nodes
        self._setting = setting
        #: Which topics matter, where that is not what the metadata is kept for: of a pattern it is kept for all.
        self.chosen_topics: Callable[[], Collection[str]] = lambda: metadata.topics() or ()

    def troubles(self) -> Mapping[Hashable, Trouble]:
        metadata, nodes = self._metadata, self._nodes
        if metadata.is_bootstrapping:
            return {_BOOTSTRAP: self._nobody_answers()}
        found: dict[Hashable, Trouble] = {}
        for node in metadata.view.nodes.values():
            address = address_text(node.host, node.port)
            why = nodes.unreached.get(address)
            if why is None and nodes.is_connecting(node):
                why = "no answer yet"
            if why is not None:
                found["node", node.node_id] = Trouble(
                    f"broker {node.node_id} at {address} cannot be reached: {why}; it is tried again. This is the "
                    "address that the cluster gives to clients (advertised.listeners of that broker): check that it "
                    "can be reached from here",
                    nodes.tries.get(address, 0),
                )
        error = metadata.last_error
        if error is not None and not found:
            found["metadata",] = Trouble(
                f"the metadata of the cluster cannot be updated: {error}; it is tried again", metadata.failure_count
            )
        return found | topic_troubles(metadata.view, self.chosen_topics(), metadata.view.version)

    def _nobody_answers(self) -> Trouble:
        nodes = self._nodes
        addresses = [address_text(each.host, each.port) for each in nodes.bootstrap]
        text = failures_text(nodes.failures, nodes.bootstrap)
        error = self._metadata.last_error
        cause = f" ({error})" if error is not None and not any(each in nodes.failures for each in addresses) else ""
        return Trouble(
            f"no broker answers at {text}{cause}; it is tried again. Check {self._setting}, and that a broker listens "
            "there",
            sum(nodes.tries.get(each, 0) for each in addresses),
        )

    def trouble_ended(self, kind: str, name: object) -> str | None:
        view = self._metadata.view
        if kind == "bootstrap":
            return None if self._metadata.is_bootstrapping else f"the cluster answers: {_cluster_text(view.nodes)}"
        if kind == "metadata":
            return "the metadata of the cluster is up to date again" if self._metadata.last_error is None else None
        if kind == "topic":
            return topic_ended(view, str(name))
        if kind != "node" or not isinstance(name, int):
            return None
        node = view.nodes.get(name)
        if node is None:
            return f"broker {name} is not part of the cluster any more"
        address = address_text(node.host, node.port)
        is_reached = self._nodes.is_connected(node) or address not in self._nodes.unreached
        return f"broker {name} at {address} answers" if is_reached else None


def _cluster_text(nodes: Mapping[int, Node]) -> str:
    return f"{len(nodes)} broker{'s are' if len(nodes) != 1 else ' is'} known"
