"""Why it is slow, if it is: sentences from what the screen shows. The parts of the time of a request say where it is
spent, and that says whom to look at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from barnabas.cli.top.model import SILENT, ApiRow, Model

#: Requests that take longer than this in the mean are looked at.
_SLOW_MS: Final = 100.0
_BUSY: Final = 0.1
_STALL_MS: Final = 200.0
_MOST: Final = 5
#: Who looks asks it, and it takes as long as there is no controller: nobody else waits for it.
_OWN_QUESTION: Final = "DescribeQuorum"


def reasons(model: Model) -> list[str]:
    """What is most likely to keep clients waiting, what matters most first; empty if nothing is."""
    found = [*_controller(model), *_silent(model), *_partitions(model), *_nodes(model), *_apis(model)]
    found += [*_throttled(model), *_groups(model)]
    return found[:_MOST]


def _controller(model: Model) -> Iterator[str]:
    if not model.has_controller:
        yield "No controller leads: nothing is created, changed or elected; the rest goes on"


def _silent(model: Model) -> Iterator[str]:
    silent = [str(each.broker_id) for each in model.brokers if each.state == SILENT]
    if silent:
        who = f"Broker {silent[0]} does" if len(silent) == 1 else f"Brokers {_named(silent)} do"
        yield f"{who} not answer, and nobody has fenced {'it' if len(silent) == 1 else 'them'}: clients wait"


def _partitions(model: Model) -> Iterator[str]:
    offline = [each.name for each in model.partitions if each.leader is None]
    if offline:
        topic, _, number = offline[0].rpartition("-")
        yield f"Nobody leads {_named(offline)}: neither written nor read (barnabas why {topic}:{number})"
    missing = sorted({number for each in model.partitions if each.leader is not None for number in each.missing})
    if missing:
        count = sum(each.leader is not None for each in model.partitions)
        brokers = f"broker{'' if len(missing) == 1 else 's'} {', '.join(map(str, missing))}"
        partitions = "1 partition waits" if count == 1 else f"{count:,} partitions wait"
        yield f"{partitions} for {brokers} to catch up: acks=all goes without, or is refused"


def _nodes(model: Model) -> Iterator[str]:
    for each in model.brokers:
        if each.idle is not None and each.idle < _BUSY:
            yield f"Node {each.broker_id} is busy: its loop is idle {each.idle:.0%} of the time; requests queue there"
        elif each.longest_stall_ms is not None and each.longest_stall_ms >= _STALL_MS:
            yield f"Node {each.broker_id} stood still for {each.longest_stall_ms:,.0f} ms: all its clients waited"


def _apis(model: Model) -> Iterator[str]:
    for each in sorted(model.apis or (), key=lambda each: -each.cost_ms):
        if each.cost_ms >= _SLOW_MS and each.name != _OWN_QUESTION:
            part, why = _largest(each)
            yield f"{each.name} takes {each.mean_ms:,.0f} ms, of which {part}: {why}"


def _largest(each: ApiRow) -> tuple[str, str]:
    remote = "followers are slow" if each.name == "Produce" else "other brokers, the controller or members are slow"
    parts = [
        (each.queue_ms, "in the queue", "the node has more to do than it can"),
        (each.local_ms, "worked on", "the requests are large, or the disk is slow"),
        (0.0 if each.may_wait else each.remote_ms, "waiting for others", remote),
        (each.response_queue_ms, "until the answer is sent", "the node has more to do than it can"),
        (each.send_ms, "sending", "clients take their answers slowly, or the network does"),
    ]
    value, where, why = max(parts)
    return f"{value:,.0f} {where}", why


def _throttled(model: Model) -> Iterator[str]:
    if model.throttled:
        yield f"Slowed down by quotas: {_named(list(model.throttled))}"


def _groups(model: Model) -> Iterator[str]:
    alone = [each.group_id for each in model.groups if each.lag and not each.members and each.state == "Empty"]
    if alone:
        verb = "has" if len(alone) == 1 else "have"
        yield f"{_named(alone)} {verb} lag and no members: nobody reads"
    turning = [each.group_id for each in model.groups if "Rebalanc" in each.state]
    if turning:
        yield f"{_named(turning)} {'is' if len(turning) == 1 else 'are'} rebalancing: nothing is read meanwhile"


def _named(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")
