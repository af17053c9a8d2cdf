"""`barnabas demo`: a node, a click stream and the example pipeline on Spark, with one command."""

from __future__ import annotations

import importlib.util
import logging
import re
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from barnabas.base.errors import BarnabasError
from barnabas.base.extras import how_to_install
from barnabas.cli.output import is_terminal, say
from barnabas.cli.stopping import Stop, StoppedError
from barnabas.net.errors import ListenError
from barnabas.spark.demo.story import LOWEST_RATE

if TYPE_CHECKING:
    from barnabas.spark.demo.picture import Picture
    from barnabas.spark.demo.running import DemoOptions, DemoResult

_LINE_EVERY_S: Final = 2.0
_HIGHEST_RATE: Final = 50_000


@click.command()
@click.option(
    "--seconds",
    metavar="N",
    type=click.FloatRange(min=1),
    help="Write clicks for this time; then take what was written in and stop Spark, half a minute more or so. "
    "Without it, Ctrl-C does that. A second Ctrl-C ends the demo at once.",
)
@click.option(
    "--rate",
    metavar="N",
    type=click.IntRange(LOWEST_RATE, _HIGHEST_RATE),
    default=200,
    show_default=True,
    help="Clicks in a second.",
)
@click.option("--seed", metavar="N", type=int, default=1, show_default=True, help="Another number, other clicks.")
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write project, tables and checkpoints there and leave them.",
)
@click.option(
    "--open-port",
    metavar="PORT",
    type=click.IntRange(1, 65535),
    help="Where the node listens.  [default: any free port]",
)
@click.option(
    "--clicks-only",
    metavar="HOST:PORT",
    help="Only create the topics on this cluster and write clicks; run no node and no Spark.",
)
def demo(
    seconds: float | None, rate: int, seed: int, keep: Path | None, open_port: int | None, clicks_only: str | None
) -> int:
    """Watch a pipeline at work: clicks from a topic into a table, sessions into a topic, broken records aside.

    A node starts inside this process and a stream of clicks is written to it; Spark takes about 15 seconds to start,
    then the example project that `barnabas pipeline init` writes runs again and again. Nothing is left behind, unless
    --keep says where; but for Spark's log, if the demo fails and names it. Kill Spark meanwhile, if you like
    (kill -9 of its java process): it starts again, and nothing is lost or twice. Ctrl-C stops the clicks; what was
    written is taken in, and then all of it is counted.

    \b
    Examples:
      barnabas demo
      barnabas demo --seconds 60 --rate 1000
      barnabas demo --keep shop --open-port 9092
    """
    if clicks_only is not None and (keep is not None or open_port is not None):
        raise click.UsageError("--clicks-only runs no node and no pipeline: it takes no --keep and no --open-port")
    with Stop() as stop:
        told_to_stop, enough = threading.Event(), threading.Event()
        if clicks_only is not None:
            stop.react(told_to_stop.set)
            with suppress(StoppedError):
                _write_clicks(clicks_only, rate, seed, seconds, stop, told_to_stop)
        else:
            from barnabas.spark.pipelines.server import check_installed

            check_installed()
            from barnabas.spark.demo.running import DemoOptions

            options = DemoOptions(
                rate=rate, seed=seed, seconds=seconds, keep=keep, listen=f"127.0.0.1:{open_port or 0}"
            )
            # Ctrl-C is how it is meant to end; what was written is counted then.
            stop.react(lambda: (enough if stop.signal_number == signal.SIGINT else told_to_stop).set())
            _run(options, told_to_stop, enough)
        return 0 if seconds is None and stop.signal_number == signal.SIGINT else stop.exit_code


def _run(options: DemoOptions, told_to_stop: threading.Event, enough: threading.Event) -> None:
    from barnabas.cli.running import log_to_stderr
    from barnabas.spark.demo.running import Demo

    log_to_stderr(logging.ERROR)
    with _showing() as show:
        try:
            outcome = Demo(options, show).run(told_to_stop, enough)
        except ListenError as problem:
            # It tells of options that the demo does not have.
            reason, _, _ = str(problem).partition(";")
            raise BarnabasError(f"{reason}; choose another port with --open-port") from problem
    if outcome.failure is not None:
        raise outcome.failure
    _tell(outcome, options)


def _write_clicks(
    bootstrap_servers: str, rate: int, seed: int, seconds: float | None, stop: Stop, told_to_stop: threading.Event
) -> None:
    if importlib.util.find_spec("pyarrow") is None:
        raise BarnabasError(f"the clicks are written with Arrow, and there is no pyarrow: {how_to_install('arrow')}")
    from barnabas.spark.demo.writing import create_topics, write_clicks

    # Until somebody answers there is nothing that would have to end well.
    stop.is_interruptible = True
    try:
        create_topics(bootstrap_servers)
    finally:
        stop.is_interruptible = False
    say(f"writing clicks to {bootstrap_servers}, {rate} in a second; Ctrl-C ends it")
    written = write_clicks(bootstrap_servers, rate=rate, seed=seed, seconds=seconds, told_to_stop=told_to_stop)
    say(
        f"{written.clicks:,} clicks ({written.broken:,} broken), "
        f"{written.users:,} users ({written.users_gone:,} more are gone)"
    )


@contextmanager
def _showing() -> Iterator[Callable[[Picture], None]]:
    """How pictures get to whoever looks: a screen that changes at a terminal, a line now and then elsewhere."""
    from barnabas.spark.demo.picture import line, screen

    if not is_terminal():
        yield _Lines(line)
        return
    from rich.live import Live

    with Live(refresh_per_second=5) as live:
        yield lambda picture: live.update(screen(picture))


class _Lines:
    """A line every few seconds, and whenever an update has ended."""

    def __init__(self, line: Callable[[Picture], str]) -> None:
        self._line = line
        self._last: Picture | None = None

    def __call__(self, picture: Picture) -> None:
        last = self._last
        if last is None:
            say(f"node at {picture.bootstrap_servers}; look into it with: {picture.hint}")
        elif picture.phase == last.phase and picture.elapsed_s < last.elapsed_s + _LINE_EVERY_S:
            return
        say(self._line(picture))
        sys.stdout.flush()
        self._last = picture


def _tell(outcome: DemoResult, options: DemoOptions) -> None:
    """What came of it, and what to try next."""
    picture, written = outcome.picture, outcome.written
    say()
    say(f"{written.clicks:,} clicks were written, {written.broken:,} of them broken; {_ending(outcome)}:")
    say(f"  table clicks        {picture.table_rows:>9,} rows")
    say(f"  topic sessions      {picture.sessions:>9,} records")
    say(f"  topic clicks.dead   {picture.dead_letters:>9,} records")
    if outcome.restarts:
        times = "once" if outcome.restarts == 1 else f"{outcome.restarts} times"
        say(f"Spark's driver was gone {times}, and the next one went on where it had been.")
    if outcome.is_complete and not outcome.is_exact:
        raise BarnabasError(
            f"counted, and it is not exact: of {written.valid:,} valid clicks {outcome.distinct_clicks:,} are in the "
            f"table, in {picture.table_rows:,} rows; of {written.broken:,} broken ones {picture.dead_letters:,} are "
            f"among the dead letters; of {len(outcome.expected_sessions):,} sessions that are over {_found(outcome):,} "
            f"are in their topic as they were, of {len(outcome.sessions):,} that are there; {outcome.twice:,} records "
            "are in their topics twice. Unless somebody else wrote to them, this must not happen: please tell us, with "
            "what --keep leaves"
        )
    if outcome.is_complete:
        say("Counted: every valid click is in the table, once; every broken one is among the dead letters, once;")
        say("every session that is over is in its topic, once. Table and topics are written exactly once.")
    else:
        say("Not counted: it was stopped before all that was written was taken in.")
    say()
    say("Try next:")
    for text in _next_steps(options.keep):
        say(f"  {text}")


def _found(outcome: DemoResult) -> int:
    return len(outcome.expected_sessions.items() & outcome.sessions.items())


def _ending(outcome: DemoResult) -> str:
    """How far the updates came."""
    whole, broken_off = outcome.picture.updates, outcome.broken_off
    if broken_off is not None and not outcome.is_complete:
        return f"stopped during update {broken_off}"
    return "1 update" if whole == 1 else f"{whole} updates" if whole else "stopped before the first update"


def _next_steps(kept: Path | None) -> Iterator[str]:
    """Lines that fit into 80 columns, as long as the folder's name is short."""
    if kept is None:
        yield "barnabas demo --keep shop          # leaves the project and its tables in shop"
    else:
        script = f"import pandas; print(pandas.read_parquet({str(kept / 'tables' / 'clicks')!r}))"
        yield f"python -c {_in_double_quotes(script)}"
        yield f"less {shlex.quote(str(kept / 'README.md'))}"
        yield "# the node is gone, and its topics; with new ones, as the README tells:"
        yield f"barnabas pipeline run {shlex.quote(str(kept))} --full-refresh-all"
    yield "barnabas pipeline init my-project  # the same project, for a cluster of yours"


def _in_double_quotes(text: str) -> str:
    """For a shell. Single quotes, which the text has itself, would be hard to read."""
    return '"' + re.sub(r'(["$`\\])', r"\\\1", text) + '"'
