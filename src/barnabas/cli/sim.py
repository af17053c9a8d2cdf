"""`barnabas sim`: run scenarios of the simulator from seeds, and tell of those that fail."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Final, Protocol

import click

from barnabas.cli import output
from barnabas.cli.main import FAILED
from barnabas.cli.output import say
from barnabas.cli.sim_ledger import Ledger, LedgerKey, current_commit
from barnabas.cli.sim_running import SeedRun, run_many
from barnabas.testing.sim.scenarios import (
    DEPTHS,
    SCENARIOS,
    ScenarioOptions,
    SeedReport,
    default_depth,
    load,
    shortest_failing,
)

_RANGE: Final = re.compile(r"([0-9]+)\.\.([0-9]*)")
_FIRST_SEED: Final = 1
#: Seeds that are run between two looks at the clock.
_CHUNK: Final = {"model": 20, "whole": 1}
_LINE_EVERY_S: Final = 30.0
_TOLD_LINES: Final = 60


@click.command()
@click.option("--scenario", default="raft", show_default=True, help=f"What is played: {', '.join(SCENARIOS)}.")
@click.option("--seed", type=click.IntRange(0), metavar="N", help="Run one seed.")
@click.option("--seeds", metavar="A..B", help="Run the seeds from A to B; with --minutes, A.. has no end.")
@click.option("--minutes", type=click.FloatRange(0, min_open=True), metavar="M", help="Stop after so many minutes.")
@click.option("--voters", type=int, default=3, show_default=True, help="How many replicas vote.")
@click.option(
    "--depth",
    type=click.Choice(DEPTHS),
    help="Simulate messages and logs (fast, the default where there is it), or sockets and files.",
)
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="In how many processes.")
@click.option("--ledger", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Count seeds here.")
@click.option("--faults", type=click.IntRange(0), metavar="K", help="Of the plan, only the first K faults; one seed.")
@click.option("--story", is_flag=True, help="Tell the story of a seed even if nothing went wrong; one seed.")
@click.option("--keep-going", is_flag=True, help="Do not stop at the first seed that fails.")
def sim(
    scenario: str,
    seed: int | None,
    seeds: str | None,
    minutes: float | None,
    voters: int,
    depth: str | None,
    jobs: int,
    ledger: Path | None,
    faults: int | None,
    story: bool,
    keep_going: bool,
) -> int:
    """Run a scenario in a simulated world, from a seed or from many.

    A seed decides everything: who is slow, what is lost, which machine dies in which write. The same seed does the
    same again, on every machine. If an invariant breaks, this tells which one and what happened before, finds the
    fewest faults that still break it, and ends with 1.

    With --ledger FILE, seeds that this commit has run without a failure are passed over, and those that it runs now
    are added; so a long run can be interrupted and resumed.

    \b
    Examples:
      barnabas sim --seeds 1..1000
      barnabas sim --seed 17 --voters 5 --story
      barnabas sim --scenario quorum --seeds 1..100
      barnabas sim --scenario cluster --seeds 1..100
      barnabas sim --scenario transactions --seeds 1..100
      barnabas sim --minutes 60 --jobs 4 --ledger seeds.jsonl
    """
    depth = depth or default_depth(scenario)
    options = ScenarioOptions(voters, depth)
    loaded = load(scenario, options)  # before anything else is said: it may not exist
    wanted = _wanted(seed, seeds, minutes)
    if isinstance(wanted, int):
        return _run_one(scenario, options, wanted, faults, story)
    if faults is not None or story:
        raise click.UsageError("--faults and --story are for one --seed")
    kept = Ledger(ledger, LedgerKey(current_commit() if ledger else "", scenario, voters, depth))
    total = None if isinstance(wanted, count) else len(wanted)
    deadline_s = None if minutes is None else time.monotonic() + minutes * 60
    with _progress(total, kept.clean_count if total is not None else 0) as shown:
        pending = kept.without_done(wanted)
        runs = run_many(scenario, options, pending, jobs=jobs, chunk=_CHUNK[depth], deadline_s=deadline_s)
        failures = _collect(runs, kept, shown, keep_going)
    say(shown.summary())
    if ledger is not None:
        say(f"{ledger}: {kept.clean_count} clean seeds of this commit, {len(kept.failed)} that failed")
    if not failures:
        return 0
    for failure in failures[1:]:
        say(f"seed {failure.seed} failed: {failure.broken}: {failure.problem}")
    _tell_failure(shortest_failing(loaded, failures[0]), scenario, options)
    return FAILED


def _wanted(seed: int | None, seeds: str | None, minutes: float | None) -> int | range | count[int]:
    if seed is not None and (seeds is not None or minutes is not None):
        raise click.UsageError("--seed runs one; it takes neither --seeds nor --minutes")
    if seed is not None:
        return seed
    if seeds is None:
        if minutes is None:
            raise click.UsageError("say which seeds: --seed 17, --seeds 1..1000, or --minutes 10")
        return count(_FIRST_SEED)
    match = _RANGE.fullmatch(seeds.strip())
    if match is None:
        raise click.UsageError(f"--seeds {seeds}: write it as A..B, as in 1..1000")
    first = int(match[1])
    if not match[2]:
        if minutes is None:
            raise click.UsageError(f"--seeds {seeds}: without an end it needs --minutes")
        return count(first)
    if int(match[2]) < first:
        raise click.UsageError(f"--seeds {seeds}: it ends before it begins")
    return range(first, int(match[2]) + 1)


def _run_one(name: str, options: ScenarioOptions, seed: int, faults: int | None, story: bool) -> int:
    loaded = load(name, options)
    report = loaded.run(seed, fault_limit=faults, keep_story=story)
    if not report.is_clean:
        # Whoever says how many faults has them few enough.
        again = loaded.run(seed, fault_limit=faults, keep_story=True) if faults is not None else None
        _tell_failure(again or shortest_failing(loaded, report), name, options)
        return FAILED
    _tell_plan(report)
    for line in report.story:
        say(line)
    what = ", ".join(f"{amount} {name}" for name, amount in report.counts.items())
    say(f"seed {seed} is clean: {report.virtual_s:.1f} virtual seconds, {report.event_count} events, {what}")
    say(f"trace {report.trace}")
    return 0


def _collect(runs: Iterator[SeedRun], kept: Ledger, shown: _Shown, keep_going: bool) -> list[SeedReport]:
    failures: list[SeedReport] = []
    with closing(runs):  # type: ignore[type-var]
        for run in runs:
            kept.add(run.seeds, [each.seed for each in run.failures])
            failures += run.failures
            shown.add(run)
            if failures and not keep_going:
                break
    return sorted(failures, key=lambda each: each.seed)


# What is told


def _tell_failure(report: SeedReport, name: str, options: ScenarioOptions) -> None:
    say()
    say(f"seed {report.seed} failed after {report.virtual_s:.3f} virtual seconds")
    say(f"  broken: {report.broken}")
    say(f"  {report.problem}")
    say()
    _tell_plan(report)
    say("What happened:" if len(report.story) <= _TOLD_LINES else f"What happened, the last {_TOLD_LINES} lines:")
    for line in report.story[-_TOLD_LINES:]:
        say(f"  {line}")
    say()
    options_said = f"--voters {options.voters} --depth {options.depth}"
    say(f"Again: barnabas sim --scenario {name} --seed {report.seed} {options_said} --faults {report.fault_count}")


def _tell_plan(report: SeedReport) -> None:
    say(f"{len(report.plan)} faults:" if report.plan else "No faults.")
    for line in report.plan:
        say(f"  {line}")
    say()


class _Bar(Protocol):
    def update(self, seeds: int, text: str) -> None: ...


class _Shown:
    """How far it is, and how fast."""

    def __init__(self, bar: _Bar | None) -> None:
        self._bar = bar
        self._began_s = self._told_s = time.monotonic()
        self.seed_count = 0
        self._virtual_s = 0.0
        self._event_count = 0
        self._failed_count = 0
        self._counts: dict[str, int] = {}

    def add(self, run: SeedRun) -> None:
        self.seed_count += len(run.seeds)
        self._virtual_s += run.virtual_s
        self._event_count += run.event_count
        self._failed_count += len(run.failures)
        for what, amount in run.counts.items():
            self._counts[what] = self._counts.get(what, 0) + amount
        if self._bar is not None:
            self._bar.update(len(run.seeds), self._speed())
        elif time.monotonic() - self._told_s >= _LINE_EVERY_S:
            self._told_s = time.monotonic()
            say(f"{self.seed_count} seeds, {self._failed_count} failed; {self._speed()}")

    def _speed(self) -> str:
        real_s = max(time.monotonic() - self._began_s, 1e-9)
        return f"{self.seed_count / real_s:.1f} seeds/s, {self._virtual_s / real_s:,.0f} virtual s per s"

    def summary(self) -> str:
        what = "".join(f", {amount} {name}" for name, amount in self._counts.items())
        ended = f"{self.seed_count} seeds, {self._failed_count} failed"
        return f"{ended}; {self._speed()}; {self._event_count} events{what}"


@contextmanager
def _progress(total: int | None, done: int) -> Iterator[_Shown]:
    """A bar for people at a terminal; elsewhere a line now and then."""
    if not output.has_colours(sys.stderr):
        yield _Shown(None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("seeds"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total, completed=done)

        class Bar:
            def update(self, seeds: int, text: str) -> None:
                progress.update(task, advance=seeds, description=text)

        yield _Shown(Bar())
