"""Damages every file of a data directory in every way, one at a time, and looks whether the node notices.

    python -m tests.damage.sweep                      # all of it, after a clean stop and after a kill
    python -m tests.damage.sweep --after kill --only '*/plain-0/*.log: flip*'

A node in a simulated world fills a directory and stops; for each damage the directory is restored, damaged, and the
node started on it, twice; a client reads everything back. What it gets must be right, or be refused by name, or fail
with an error at the reader, or (after a kill, above the recovery point) be cut with a warning. `silently less` is what
the sweep exists to find: exit code 1, unless it is something that cannot be noticed in Kafka's format.
"""
# ruff: noqa: T201

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatch
from multiprocessing import get_context
from typing import get_args

from barnabas.cli.progress import progress
from tests.damage.filling import After, Filled, fill
from tests.damage.judging import Outcome, Verdict, judge
from tests.damage.mutations import Mutation, all_mutations, file_kind
from tests.damage.undetectable import UNDETECTABLE, why_undetectable


def chosen(filled: Filled, pattern: str = "*", every: int = 1, first: int = 0) -> list[int]:
    """Which of all mutations: the places of those whose text matches, and of these each so manieth."""
    found = [place for place, each in enumerate(all_mutations(filled.contents)) if fnmatch(str(each), pattern)]
    return found[first::every]


def sweep(after: After, places: Sequence[int], *, jobs: int = 1) -> Iterator[Verdict]:
    """The verdicts on the mutations at these places, in order."""
    # Mutations are functions, which do not travel: each worker makes the same ones again.
    if jobs == 1:
        worker = _Worker(after)
        for place in places:
            outcome = worker.judge(place)
            yield Verdict(worker.mutations[place], *outcome)
        return
    mutations = list(all_mutations(fill(after).contents))
    with ProcessPoolExecutor(jobs, get_context("spawn"), _begin_worker, (after,)) as pool:
        for place, outcome in zip(places, pool.map(_judge_place, places, chunksize=8), strict=True):
            yield Verdict(mutations[place], *outcome)


class _Worker:
    def __init__(self, after: After) -> None:
        self.filled = fill(after)
        self.mutations: list[Mutation] = list(all_mutations(self.filled.contents))

    def judge(self, place: int) -> tuple[Outcome, str, bool]:
        verdict = judge(self.filled, self.mutations[place])
        return verdict.outcome, verdict.why, verdict.is_unflushed_tail


_workers: list[_Worker] = []


def _begin_worker(after: After) -> None:
    _workers.append(_Worker(after))


def _judge_place(place: int) -> tuple[Outcome, str, bool]:
    return _workers[0].judge(place)


# Showing


def _show_counts(verdicts: Sequence[Verdict]) -> None:
    counts = Counter((file_kind(each.mutation.path), each.mutation.kind, each.outcome) for each in verdicts)
    outcomes = [outcome for outcome in Outcome if any(each.outcome is outcome for each in verdicts)]
    rows = sorted({key[:2] for key in counts})
    width = max(len(kind) for kind, _ in rows)
    print(f"{'file':{width}}  {'damage':10}" + "".join(f"  {outcome.value:>22}" for outcome in outcomes))
    for kind, damage in rows:
        cells = [counts[kind, damage, outcome] for outcome in outcomes]
        print(f"{kind:{width}}  {damage:10}" + "".join(f"  {cell or '':>22}" for cell in cells))
    totals = [sum(each.outcome is outcome for each in verdicts) for outcome in outcomes]
    print(f"{'all':{width}}  {'':10}" + "".join(f"  {total:>22}" for total in totals))


def _show_bad(verdicts: Sequence[Verdict]) -> int:
    """How many should have been noticed."""
    excused: Counter[str] = Counter()
    bad = 0
    for verdict in verdicts:
        if not verdict.outcome.is_bad:
            continue
        entry = why_undetectable(verdict)
        if entry is not None:
            excused[entry.name] += 1
            continue
        bad += 1
        print(f"{verdict.outcome.value}: {verdict.mutation}: {verdict.why[:300]}")
    for each in UNDETECTABLE:
        print(f"cannot be noticed: {each.name} ({excused[each.name]} times here): {each.reason}")
    return bad


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.damage.sweep",
        description=(__doc__ or "").partition("\n\n")[0],
        epilog="Exit code 1 if something was silently less that could have been noticed.",
    )
    parser.add_argument("--after", choices=get_args(After), help="how the node stopped; both if not given")
    parser.add_argument(
        "--only", metavar="PATTERN", default="*", help="only '<path>: <damage>' that match, as '*.log: flip*'"
    )
    parser.add_argument("--every", metavar="N", type=int, default=1, help="only each Nth of them")
    parser.add_argument("--jobs", metavar="N", type=int, default=os.cpu_count() or 1, help="processes; one per core")
    parser.add_argument("--all", action="store_true", help="print every verdict, not only the bad ones")
    given = parser.parse_args(arguments)
    bad = 0
    for after in [given.after] if given.after else get_args(After):
        places = chosen(fill(after), given.only, given.every)
        if not places:
            parser.error(f"nothing matches {given.only!r}")
        verdicts = []
        with progress(f"after {after}", len(places)) as step:
            for verdict in sweep(after, places, jobs=min(given.jobs, len(places))):
                verdicts.append(verdict)
                step()
        print(f"\nAfter a {'clean stop' if after == 'clean' else 'kill'}: {len(verdicts)} damages")
        if given.all:
            for verdict in verdicts:
                print(f"{verdict.outcome.value}: {verdict.mutation}: {verdict.why[:300]}")
        _show_counts(verdicts)
        bad += _show_bad(verdicts)
    print(f"\n{bad} damages were not told of." if bad else "\nNothing was silently less.")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
