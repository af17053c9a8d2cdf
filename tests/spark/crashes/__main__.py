"""The full form: `python -m tests.spark.crashes --seeds 20`. Each seed is a story; a failure names its seed."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import click

from barnabas.testing import EmbeddedBroker
from tests.spark.crashes import stories


@click.command()
@click.option("--seeds", default=20, show_default=True, help="How many stories to run of each kind.")
@click.option("--first-seed", default=1, show_default=True)
@click.option("--kills", default=6, show_default=True, help="How often something dies in each.")
@click.option("--kind", type=click.Choice(["drivers", "executors", "both"]), default="both", show_default=True)
@click.option("--connector", type=click.Choice(["barnabas", "kafka"]), default="barnabas", show_default=True)
def main(seeds: int, first_seed: int, kills: int, kind: str, connector: str) -> None:
    """Kill drivers and executors at random; stops at the first row that is lost or doubled."""
    told = {"drivers": stories.killed_drivers, "executors": stories.killed_executors}
    for seed in range(first_seed, first_seed + seeds):
        for name in told if kind == "both" else [kind]:
            folder = Path(tempfile.mkdtemp(prefix=f"crashes-{name}-{seed}-"))
            click.echo(f"seed {seed}, {name}: ", nl=False)
            try:
                with EmbeddedBroker() as broker:
                    told[name](folder, broker, seed=seed, kills=kills, connector=connector)
            except BaseException:
                click.echo(f"failed; what it left is in {folder}")
                raise
            shutil.rmtree(folder)
            click.echo("nothing lost, nothing twice")


if __name__ == "__main__":
    main()
