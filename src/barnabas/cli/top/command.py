"""`barnabas top`: who writes how much, who lags, what is slow and why, on one screen. Kafka has nothing like it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from barnabas.base.errors import BarnabasError
from barnabas.cli.admin_options import ClusterOptions, reason
from barnabas.cli.kafka_options import GivenOptions, KafkaTool, connection
from barnabas.cli.output import print_json, say
from barnabas.cli.stopping import Stop
from barnabas.cli.top.asking import Looker
from barnabas.cli.top.model import Model, Sample, model_of
from barnabas.cli.top.reasons import reasons
from barnabas.cli.top.scraping import Scraper, parse_addresses
from barnabas.cli.top.terminal import END, Terminal, show_all_text, terminal_width
from barnabas.cli.top.view import Choice, Section, screen, time_text
from barnabas.cli.warnings_shown import warnings_go_to
from barnabas.wire.json_form import camel_case

if TYPE_CHECKING:
    from barnabas.client.admin import Admin

_SHORTEST_S: Final = 0.2
_LONGEST_S: Final = 600.0


@click.command(cls=KafkaTool)
@connection()
@click.option("--once", is_flag=True, help="Show one screen, when there are rates, and end.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(_SHORTEST_S, _LONGEST_S),
    default=2.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option(
    "--metrics",
    metavar="HOST:PORT,…",
    help="Metrics listeners of nodes of ours, or their URLs. Without it, brokers are asked where theirs are; 'none' "
    "asks nobody.",
)
@click.pass_context
def top(
    ctx: click.Context,
    bootstrap_server: str | None,
    command_config: str | None,
    as_json: bool,
    once: bool,
    interval_s: float,
    metrics: str | None,
) -> int:
    """Show brokers, throughput by topic, lag by group in records and seconds, the slowest APIs with the parts of their
    time, and partitions that lack replicas; and why it is slow, if it is. The screen is drawn again every two seconds.

    Of any Kafka it shows what a client may ask; throughput is what ends of partitions grow by. Nodes of ours with a
    metrics listener tell the rest: bytes, APIs, and how busy they are. It changes nothing.

    \b
    Keys: q quits; 1 to 5 show one part alone, 0 all; n and v order by name and by value; + and - change the interval.

    \b
    Examples:
      barnabas top --bootstrap-server 127.0.0.1:9092
      barnabas top --bootstrap-server 127.0.0.1:9092 --once --json
      barnabas top --bootstrap-server kafka:9092 --metrics kafka:9404
    """
    GivenOptions(ctx).need("--bootstrap-server")
    scraper = None if metrics == "none" else Scraper(parse_addresses(metrics))
    cluster = ClusterOptions(bootstrap_server, command_config)
    if not as_json:
        show_all_text()
    wanted = _Wanted(as_json, once, interval_s)
    return cluster.run(lambda admin: _Top(admin, scraper, wanted).run())


class _Wanted:
    """How it is shown."""

    def __init__(self, as_json: bool, once: bool, interval_s: float) -> None:
        self.as_json = as_json
        self.once = once
        self.interval_s = interval_s


class _Top:
    """Looks, draws, waits, and listens to keys meanwhile."""

    def __init__(self, admin: Admin, scraper: Scraper | None, wanted: _Wanted) -> None:
        self._looker = Looker(admin, lambda: time.time_ns() // 1_000_000, scraper, is_once=wanted.once)
        self._wanted = wanted
        self._choice = Choice(interval_s=wanted.interval_s)
        self._model: Model | None = None
        self._before: Sample | None = None
        #: Set when nobody wants to wait for the next look.
        self._woken = asyncio.Event()
        self._over = asyncio.Event()
        self._terminal: Terminal | None = None
        #: What the client told last, until a look went well without another word of it.
        self._warning: str | None = None

    async def run(self) -> int:
        """Until it is over; the exit code."""
        if self._wanted.once:
            await self._look()
            await asyncio.sleep(self._wanted.interval_s)
            self._show(await self._look())
            return 0
        if self._wanted.as_json:
            while True:
                self._show(await self._look())
                await asyncio.sleep(self._wanted.interval_s)
        # An error of the first look is told by words on a terminal as it was.
        await self._look()
        with Stop() as stop:
            # Signals come between any two steps of the program, not of the loop.
            loop = asyncio.get_running_loop()
            stop.react(lambda: loop.call_soon_threadsafe(self._over.set))
            with Terminal(self._key, self._draw) as self._terminal:
                await self._show_until_over(self._terminal)
        return stop.exit_code

    async def _show_until_over(self, terminal: Terminal) -> None:
        self._choice = replace(self._choice, has_keys=terminal.has_keys)
        if not terminal.is_watched:
            await self._until_over()
            return
        self._draw()
        with warnings_go_to(self._warned):
            await self._until_over()

    async def _until_over(self) -> None:
        """Look again and again; when it is over, nobody waits for what is asked at that moment."""
        watching, over = asyncio.ensure_future(self._watch()), asyncio.ensure_future(self._over.wait())
        try:
            await asyncio.wait({watching, over}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
        finally:
            watching.cancel()
            over.cancel()
            await asyncio.wait({watching, over})

    async def _watch(self) -> NoReturn:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._choice.interval_s):
                    await self._woken.wait()
            self._woken.clear()
            await self._look_again()
            self._draw()

    async def _look(self) -> Model:
        sample = await self._looker.look()
        self._model = model_of(sample, self._before, self._looker.history)
        self._before = sample
        return self._model

    async def _look_again(self) -> None:
        """A cluster that does not answer for a while is what people want to see, with what it said last."""
        before = self._warning
        try:
            await self._look()
        except BarnabasError as problem:
            if self._model is not None:
                silent = f"no answer since {time_text(self._model.at_ms)}: {reason(problem)}"
                self._model = replace(self._model, problems=(silent,))
        else:
            if self._warning is before:
                self._warning = None

    def _warned(self, warning: str) -> None:
        """The client has something to say, most likely that somebody cannot be reached, long before it gives up."""
        self._warning = warning
        with contextlib.suppress(OSError):  # which is of no concern to the client, and comes again
            self._draw()

    # Showing

    def _show(self, model: Model) -> None:
        if self._wanted.as_json:
            print_json(as_values(model))
            return
        for line in screen(model, terminal_width(), None, self._choice).lines:
            say(line)

    def _draw(self) -> None:
        terminal = self._terminal
        if terminal is None or self._model is None:
            return
        model = self._model
        if self._warning is not None:
            model = replace(model, problems=(self._warning, *model.problems))
        drawn = screen(model, terminal.width, terminal.height, self._choice)
        terminal.draw(drawn.lines, drawn.headings)
        if not terminal.is_watched:
            terminal.draw([""], frozenset())

    def _key(self, key: str) -> None:
        choice = self._choice
        if key in ("q", "Q", END):
            self._over.set()
            return
        if key == " ":
            self._woken.set()
        elif key in ("n", "v"):
            choice = replace(choice, by_name=key == "n")
        elif key == "0":
            choice = replace(choice, only=None)
        elif key in {each.value for each in Section}:
            choice = replace(choice, only=Section(key))
        elif key in ("+", "-"):
            seconds = choice.interval_s * (2 if key == "+" else 0.5)
            choice = replace(choice, interval_s=min(_LONGEST_S, max(_SHORTEST_S, seconds)))
            self._woken.set()  # for the old interval, nobody waits any more
        if choice != self._choice:
            self._choice = choice
            self._draw()


#: Names that JSON spells out.
_SPELT: Final = {
    "at_ms": "timestampMs",
    "records_s": "recordsPerSecond",
    "bytes_in_s": "bytesInPerSecond",
    "bytes_out_s": "bytesOutPerSecond",
    "requests_s": "requestsPerSecond",
    "lag_s": "lagSeconds",
    "is_at_least": "isLagSecondsAtLeast",
}


def as_values(model: Model) -> dict[str, Any]:
    """A model as JSON, in the manner of Kafka's tools."""
    values: dict[str, Any] = _camel(asdict(model))
    values["reasons"] = reasons(model)
    return values


def _camel(value: Any) -> Any:
    if isinstance(value, dict):
        return {_SPELT.get(name) or camel_case(name): _camel(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_camel(each) for each in value]
    return round(value, 3) if isinstance(value, float) else value
