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
from pathlib import Path

import bench
from bench import measure
from bench.measure import Result

COLUMNS = f"{'benchmark':<58} {'ratio':>7} {'target':>7}      detail"
ROUGH = "quick: few records and rounds, so these figures are rough; ratios may be off by half"


def benchmarks() -> list[str]:
    helpers = {"__main__", "client_contestants", "measure", "node_brokers", "node_clients", "raft_member"}
    helpers |= {"spark_contestants", "cluster_nodes"}
    return sorted(module.name for module in pkgutil.iter_modules(bench.__path__) if module.name not in helpers)


def purpose(name: str) -> str:
    """What a benchmark says of itself, without loading all that it measures."""
    source = (Path(bench.__path__[0]) / f"{name}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


def show(result: Result) -> str:
    target = f"{result.target:.1f}×" if result.target is not None else "–"
    verdict = "" if result.target is None else "ok" if result.ratio >= result.target else "MISS"
    return f"{result.name:<58} {result.ratio:>6.2f}× {target:>7} {verdict:<4} {result.detail}"


def arguments(given: list[str]) -> argparse.Namespace:
    parts = "\n".join(f"  {name:<12} {purpose(name)}" for name in benchmarks())
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Speeds, as ratios against peers in the same run; above one is better.",
        epilog=f"parts:\n{parts}\n\nWhat a part compares with and cannot find, such as Apache Kafka's jars (make "
        "oracles), is left out.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="all parts within two minutes; the figures are rough")
    parser.add_argument("parts", metavar="PART", nargs="*", help="what to measure; all of it if none is named")
    asked = parser.parse_args(given)
    unknown = [each for each in asked.parts if each not in benchmarks()]
    if unknown:
        parser.error(f"no part is called {unknown[0]}; there are {', '.join(benchmarks())}")
    return asked


def main(given: list[str]) -> int:
    asked = arguments(given)
    if asked.quick:
        print(ROUGH)
        measure.be_quick()
    print(COLUMNS)
    start = time.monotonic()
    for name in asked.parts or benchmarks():
        print(f"[{time.monotonic() - start:4.0f} s] {name}: {purpose(name)}", file=sys.stderr, flush=True)
        module = importlib.import_module(f"bench.{name}")
        for result in getattr(module, "run_quickly", module.run)() if asked.quick else module.run():
            print(show(Result(*result)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
