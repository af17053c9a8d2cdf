"""Runs all benchmarks, or those named on the command line, and prints one table.

With `--quick` all of it ends within two minutes: fewer records, fewer rounds, and figures that are rough.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import pkgutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import bench
from bench import kept, measure
from bench.measure import Result

COLUMNS = f"{'benchmark':<58} {'ratio':>7} {'target':>7}      detail"
ROUGH = "quick: few records and rounds, so these figures are rough; ratios may be off by half"


def benchmarks() -> list[str]:
    helpers = {"__main__", "client_contestants", "kept", "measure", "load", "raft_member"}
    helpers |= {"spark_contestants", "cluster_nodes", "cluster_bytes", "cluster_image", "cluster_replicas"}
    helpers |= {"node_brokers", "node_clients", "node_contest"}
    return sorted(module.name for module in pkgutil.iter_modules(bench.__path__) if module.name not in helpers)


def purpose(name: str) -> str:
    """What a benchmark says of itself, without loading all that it measures."""
    source = (Path(bench.__path__[0]) / f"{name}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


def show(result: Result) -> str:
    target = f"{result.target:.1f}×" if result.target is not None else "–"
    return f"{result.name:<58} {result.ratio:>6.2f}× {target:>7} {result.verdict:<4} {result.detail}"


def arguments(given: list[str]) -> argparse.Namespace:
    parts = "\n".join(f"  {name:<12} {purpose(name)}" for name in benchmarks())
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Speeds, as ratios against peers in the same run; above one is better.",
        epilog=f"parts:\n{parts}\n\nWhat a part compares with and cannot find, such as Apache Kafka's jars (make "
        "oracles), is left out. A rate within 5 % below its target counts as met (cpu) if it took so much less "
        "CPU than the peer's.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="all parts within two minutes; the figures are rough")
    parser.add_argument("--keep", action="store_true", help="add the results to bench/results.jsonl, by commit")
    parser.add_argument(
        "--history", action="store_true", help="measure nothing: what was kept, of benchmarks with these words"
    )
    parser.add_argument("--against", metavar="SRC", help="node alone: the src of another checkout, in Kafka's place")
    parser.add_argument(
        "parts",
        metavar="PART",
        nargs="*",
        help="what to measure; all of it if none is named. Some have sections: cluster:idle",
    )
    asked = parser.parse_args(given)
    if asked.history:
        return asked
    for each in asked.parts:
        name, _, section = each.partition(":")
        if name not in benchmarks():
            parser.error(f"no part is called {name}; there are {', '.join(benchmarks())}")
        sections = getattr(importlib.import_module(f"bench.{name}"), "SECTIONS", {}) if section else {}
        if section and section not in sections:
            parser.error(f"{name} has no section called {section}; it has {', '.join(sections) or 'none'}")
    return asked


def results(part: str, *, is_quick: bool) -> Iterator[Result]:
    """Those of a part, or of a section of it (`cluster:idle`)."""
    name, _, section = part.partition(":")
    module = importlib.import_module(f"bench.{name}")
    if section:
        yield from module.SECTIONS[section](is_quick)
    else:
        yield from getattr(module, "run_quickly", module.run)() if is_quick else module.run()


def main(given: list[str]) -> int:
    asked = arguments(given)
    if asked.history:
        print(*kept.history(asked.parts), sep="\n")
        return 0
    if asked.quick:
        print(ROUGH)
        measure.be_quick()
    if asked.against is not None:
        measure.against = str(Path(asked.against).resolve())
    print(COLUMNS)
    start = time.monotonic()
    for part in asked.parts or benchmarks():
        about = purpose(part.partition(":")[0])
        print(f"[{time.monotonic() - start:4.0f} s] {part}: {about}", file=sys.stderr, flush=True)
        above = ""
        for result in results(part, is_quick=asked.quick):
            # A row that is set in belongs to the one above it, and has its name from there.
            above, name = (above, above + result.name) if result.name.startswith(" ") else (result.name, result.name)
            print(show(result) + kept.compared(name, result), flush=True)
            if asked.keep:
                kept.keep(name, result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
