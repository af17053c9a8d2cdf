"""Running a node in the foreground until it is told to stop: what `up` and `server start` share."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import threading
from collections.abc import Callable, Sequence, Set
from typing import Any, Final

from barnabas.base.errors import BarnabasError
from barnabas.base.log_context import logger, speaking
from barnabas.base.log_formats import TEXT, formatter
from barnabas.base.log_lines import LimitedHandler
from barnabas.base.runtime import SystemClock
from barnabas.base.system_runtime import SystemRuntime
from barnabas.broker.configs.logger_levels import REQUEST_LOG, apply_levels
from barnabas.broker.node import Node
from barnabas.broker.settings import BrokerSettings
from barnabas.broker.settings.process_log import ProcessLogSettings
from barnabas.cli.log_files import RotatedLog
from barnabas.cli.output import say
from barnabas.cli.supervisor import READY, STOPPING, notify
from barnabas.net.runtime import collect_garbage_rarely, run
from barnabas.storage.files import FileSystem

_log = logger("barnabas.cli")

_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_WANTED_FILES: Final = 65_536
#: A node that is not ready by then says for whom it waits.
_TELL_AFTER_S: Final = 3.0


def log_as(settings: ProcessLogSettings, level: int) -> None:
    """Log as the settings say: where to, and how."""
    if settings.logging_file is None:
        lines: logging.Handler = logging.StreamHandler(sys.stderr)
    else:
        roll_ms = settings.logging_file_roll_ms
        lines = RotatedLog(
            settings.logging_file,
            size_bytes=settings.logging_file_max_bytes,
            older=settings.logging_file_max_count,
            roll_ms=roll_ms if roll_ms > 0 else None,
        )
    log_to(lines, level, settings.logging_format)
    apply_levels(settings.logging_levels)


def log_to_stderr(level: int) -> None:
    log_to(logging.StreamHandler(sys.stderr), level)


def log_to(lines: logging.Handler, level: int, form: str = TEXT) -> None:
    """Whatever clients send: see `LimitedHandler`."""
    lines.setFormatter(formatter(form))
    limited = LimitedHandler(lines, SystemClock().monotonic_ms, _call_later, whole=[REQUEST_LOG])
    logging.basicConfig(level=level, handlers=[limited], force=True)


def _call_later(after_ms: int, action: Callable[[], None]) -> None:
    timer = threading.Timer(after_ms / 1000, action)
    timer.daemon = True
    timer.start()


def run_node(
    settings: BrokerSettings,
    files: FileSystem,
    prepare: Callable[[SystemRuntime], None] = lambda runtime: None,
    notes: Sequence[str] = (),
    farewell: str | None = None,
) -> None:
    """Start, say `ready` (and the notes, on standard error), wait for SIGINT or SIGTERM, stop, and say farewell there
    too. Raises what the start raises."""
    _allow_many_files()
    runtime = SystemRuntime()
    prepare(runtime)
    try:
        with speaking(f"node {settings.node_id}"):
            run(_serve(Node(settings, files=files, runtime=runtime), notes))
    finally:
        runtime.close()
    if farewell is not None:
        say(farewell, err=True)


async def _until_first(tasks: Set[asyncio.Task[Any]], node: Node) -> None:
    """Wait until one is done, and say what a node that starts waits for, again when that has changed."""
    told: str | None = None
    while not (await asyncio.wait(tasks, timeout=_TELL_AFTER_S, return_when=asyncio.FIRST_COMPLETED))[0]:
        waits_for = node.waits_for
        if waits_for is not None and waits_for != told:
            told = waits_for
            say(f"waiting: {waits_for}")
            sys.stdout.flush()


async def _serve(node: Node, notes: Sequence[str]) -> None:
    loop = asyncio.get_running_loop()
    told_to_stop = asyncio.Event()

    def stop(number: signal.Signals) -> None:
        _log.info("Terminating process due to signal %s", number.name)
        told_to_stop.set()

    for each in _STOP_SIGNALS:
        loop.add_signal_handler(each, stop, each)
    starting = loop.create_task(node.start())
    stopping = loop.create_task(told_to_stop.wait())
    await _until_first({starting, stopping}, node)
    if not starting.done():
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError, BarnabasError):
            await starting
        await node.stop()
        return
    starting.result()
    collect_garbage_rarely()
    metrics = "" if node.metrics.url is None else f"\nmetrics: {node.metrics.url}"
    # Both in one piece: whoever has read the first line of a pipe has the second.
    say(f"ready: {node.described}{metrics}")
    sys.stdout.flush()
    notify(READY)
    for note in notes:
        say(note, err=True)
    failing = loop.create_task(node.failed())
    await asyncio.wait({stopping, failing}, return_when=asyncio.FIRST_COMPLETED)
    # A second signal ends the process at once, for whoever does not want to wait.
    for each in _STOP_SIGNALS:
        loop.remove_signal_handler(each)
    notify(STOPPING)
    await node.stop()
    if failing.done():
        raise failing.result()
    failing.cancel()


def _allow_many_files() -> None:
    """Connections and segments each take a descriptor, and what a shell allows by default is soon used up."""
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, _WANTED_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
