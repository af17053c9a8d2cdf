"""Runs all benchmarks, or those named on the command line, and prints one table.

With `--quick` those that have a short form run in it.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys

import bench
from bench.measure import Result

COLUMNS = f"{'benchmark':<58} {'ratio':>7} {'target':>7}      detail"


def benchmarks() -> list[str]:
    helpers = {"__main__", "client_contestants", "measure", "node_brokers", "node_clients", "spark_contestants"}
    return sorted(module.name for module in pkgutil.iter_modules(bench.__path__) if module.name not in helpers)


def show(result: Result) -> str:
    target = f"{result.target:.1f}×" if result.target is not None else "–"
    verdict = "" if result.target is None else "ok" if result.ratio >= result.target else "MISS"
    return f"{result.name:<58} {result.ratio:>6.2f}× {target:>7} {verdict:<4} {result.detail}"


def main(arguments: list[str]) -> int:
    names = [each for each in arguments if each != "--quick"]
    print(COLUMNS)
    for name in names or benchmarks():
        module = importlib.import_module(f"bench.{name}")
        run = module.run if names == arguments else getattr(module, "run_quickly", module.run)
        for result in run():
            print(show(Result(*result)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
