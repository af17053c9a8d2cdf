"""The demo, exact so many times in a row: `python -m tests.spark.demo --times 10`, and with `--kills 1` its driver is
killed (SIGKILL) in each."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import click

from tests.spark.demo.test_demo_is_exact import check, run_demo


@click.command()
@click.option("--times", default=10, show_default=True)
@click.option("--kills", default=0, show_default=True, help="How often Spark's driver is killed in each.")
def main(times: int, kills: int) -> None:
    for number in range(1, times + 1):
        folder = Path(tempfile.mkdtemp(prefix="demo-")) / "kept"
        told = run_demo(folder, kills)
        assert told["restarts"] == kills
        check(folder, told)
        shutil.rmtree(folder.parent)
        click.echo(f"{number}: {told['clicks']:,} clicks, {told['updates']} updates, {kills} kills: exact")


if __name__ == "__main__":
    main()
