"""Many seeds of a scenario, in this process or in several."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context

from barnabas.testing.sim.scenarios import ScenarioOptions, SeedReport, load


@dataclass(frozen=True, slots=True)
class SeedRun:
    """A few seeds that were run. Of the clean ones only sums are kept."""

    seeds: Sequence[int]
    failures: Sequence[SeedReport]
    virtual_s: float
    event_count: int
    counts: dict[str, int]


def run_seeds(name: str, options: ScenarioOptions, seeds: Sequence[int]) -> SeedRun:
    """Run seeds one after the other."""
    scenario = load(name, options)
    failures: list[SeedReport] = []
    virtual_s, event_count = 0.0, 0
    counts: dict[str, int] = {}
    for seed in seeds:
        report = scenario.run(seed)
        virtual_s += report.virtual_s
        event_count += report.event_count
        for what, count in report.counts.items():
            counts[what] = counts.get(what, 0) + count
        if not report.is_clean:
            failures.append(report)
    return SeedRun(seeds, failures, virtual_s, event_count, counts)


def run_many(
    name: str, options: ScenarioOptions, seeds: Iterable[int], *, jobs: int, chunk: int, deadline_s: float | None
) -> Iterator[SeedRun]:
    """Run seeds until there are no more or the time is over, `chunk` at a time, in the order in which they end."""
    source = iter(seeds)
    if jobs == 1:
        while not _is_over(deadline_s) and (some := list(islice(source, chunk))):
            yield run_seeds(name, options, some)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running: set[Future[SeedRun]] = set()
        try:
            while True:
                while len(running) < 2 * jobs and not _is_over(deadline_s) and (some := list(islice(source, chunk))):
                    running.add(pool.submit(run_seeds, name, options, some))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for each in done:
                    yield each.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _is_over(deadline_s: float | None) -> bool:
    return deadline_s is not None and time.monotonic() >= deadline_s
