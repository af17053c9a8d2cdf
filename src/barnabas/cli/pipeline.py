"""`barnabas pipeline`: projects on Spark Declarative Pipelines, with topics as sources and sinks."""

from __future__ import annotations

import re
import shlex
import signal
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import click

from barnabas.base.errors import BarnabasError
from barnabas.base.properties import parse_overrides
from barnabas.cli import output
from barnabas.cli.stopping import Stop

if TYPE_CHECKING:
    from barnabas.cli.pipeline_shown import ShownPipeline
    from barnabas.spark.pipelines.reporting import Summary

_FAILED: Final = 1
_DURATION: Final = re.compile(r"(?P<number>\d+(?:\.\d+)?) *(?P<unit>ms|s|m|h|)")
_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}
#: Settings of Spark that a run needs as it sets them.
_OURS: Final = ("spark.connect.grpc.binding.", "spark.sql.artifact.isolation.")


@click.group()
def pipeline() -> None:
    """Write, check and run pipelines on Spark.

    Topics are sources and sinks of them.

    \b
    Examples:
      barnabas pipeline init clickstream
      barnabas pipeline dry-run clickstream
      barnabas pipeline run clickstream --every 5s
    """


@pipeline.command()
@click.argument("directory", metavar="DIR")
@click.option(
    "--bootstrap-server",
    metavar="HOST:PORT,…",
    default="127.0.0.1:9092",
    show_default=True,
    help="The cluster that has the topics; can be changed in the project later.",
)
@click.option("--name", help="What the pipeline is called.  [default: as the folder is]")
def init(directory: str, bootstrap_server: str, name: str | None) -> None:
    """Write an example project into a new folder.

    It reads clicks from a topic, keeps the good ones in a table, sends the broken ones to a dead-letter topic and
    sessions to another. Change it, or throw away what you do not need.
    """
    from barnabas.spark.pipelines.templates import write_project

    written = write_project(directory, name=name, bootstrap_servers=bootstrap_server)
    output.say(f"{len(written)} files written to {directory}. Next:")
    quoted = shlex.quote(directory)
    output.say(f"  barnabas pipeline dry-run {quoted}           check it")
    output.say(f"  barnabas pipeline run {quoted}               take in what is new, and end")
    output.say(f"  barnabas pipeline run {quoted} --every 5s    the same again and again")


def _of_spark(command: click.decorators.FC) -> click.decorators.FC:
    """Options of everything that starts Spark."""
    for option in (
        click.option("-v", "--verbose", is_flag=True, help="Show Spark's log, and all that it says of a failure."),
        click.option("--json", "is_json", is_flag=True, help="One line of JSON per event, for programs."),
        click.option(
            "--conf", "settings", metavar="NAME=VALUE", multiple=True, help="A setting of Spark; may be repeated."
        ),
        click.option(
            "--master",
            metavar="URL",
            default="local[*]",
            show_default=True,
            help="Where Spark runs: local[CORES], spark://HOST:PORT, yarn, k8s://…",
        ),
    ):
        command = option(command)
    return command


@pipeline.command()
@click.argument("directory", metavar="DIR")
@click.option("--every", metavar="TIME", help="Run updates again and again, one each 5s, 1m … until Ctrl-C.")
@click.option("--refresh", metavar="TABLE,…", multiple=True, help="Only these tables; may be repeated.")
@click.option("--full-refresh", metavar="TABLE,…", multiple=True, help="Empty these tables and compute them anew.")
@click.option("--full-refresh-all", is_flag=True, help="Empty all tables and compute them anew.")
@_of_spark
def run(
    directory: str,
    every: str | None,
    refresh: Sequence[str],
    full_refresh: Sequence[str],
    full_refresh_all: bool,
    master: str,
    settings: Sequence[str],
    is_json: bool,
    verbose: bool,
) -> int:
    """Take in all that is new in the sources, and end.

    Runs the pipeline in DIR. Ctrl-C stops it where it is; the next run goes on from there. Ends with 0 when everything
    was done, with 1 when a flow failed. With --every an update that fails is told, and the next one comes a little
    later; only if the first one fails, or records are lost, does that end the run.

    \b
    Examples:
      barnabas pipeline run clickstream
      barnabas pipeline run clickstream --every 5s --master local[4]
      barnabas pipeline run clickstream --full-refresh page_views --conf spark.driver.memory=4g
    """
    if full_refresh_all and (refresh or full_refresh):
        raise click.UsageError(
            "--full-refresh-all is for all tables, so it goes with neither --refresh nor --full-refresh"
        )
    every_s = None if every is None else _seconds(every)
    return _run(
        directory,
        master=master,
        settings=settings,
        is_json=is_json,
        is_verbose=verbose,
        every_s=every_s,
        refresh=_names("--refresh", refresh),
        full_refresh=_names("--full-refresh", full_refresh),
        full_refresh_all=full_refresh_all,
    )


@pipeline.command("dry-run")
@click.argument("directory", metavar="DIR")
@_of_spark
def dry_run(directory: str, master: str, settings: Sequence[str], is_json: bool, verbose: bool) -> int:
    """Check a pipeline and show it, without running it.

    All queries are analysed, so that wrong columns, types and names are found; no row is read or written.
    """
    return _run(directory, master=master, settings=settings, is_json=is_json, is_verbose=verbose, is_dry=True)


def _run(
    directory: str,
    *,
    master: str,
    settings: Sequence[str],
    is_json: bool,
    is_verbose: bool,
    is_dry: bool = False,
    every_s: float | None = None,
    refresh: Sequence[str] = (),
    full_refresh: Sequence[str] = (),
    full_refresh_all: bool = False,
) -> int:
    from barnabas.cli.pipeline_shown import AsJson, AsLines, AsTable
    from barnabas.spark.pipelines.project import load_project
    from barnabas.spark.pipelines.running import run_project
    from barnabas.spark.pipelines.server import check_installed

    check_installed()
    conf = parse_overrides(settings, origin="--conf")
    _check_settings(conf)
    project = load_project(directory)
    shown: ShownPipeline = AsJson() if is_json else AsTable() if output.is_terminal() else AsLines()
    asked = threading.Event()
    with Stop() as stop, shown:
        stop.react(asked.set)
        summary = run_project(
            project,
            master=master,
            settings=conf,
            reporter=shown,
            stop=asked,
            is_dry=is_dry,
            every_s=every_s,
            outlasts_failures=every_s is not None,
            refresh=refresh,
            full_refresh=full_refresh,
            full_refresh_all=full_refresh_all,
            is_verbose=is_verbose,
        )
    shown.ended(summary, is_dry=is_dry)
    return _exit_code(summary, stop, is_endless=every_s is not None, is_verbose=is_verbose)


def _exit_code(summary: Summary, stop: Stop, *, is_endless: bool, is_verbose: bool) -> int:
    from barnabas.spark.pipelines.reporting import UpdateResult

    if summary.outcome is UpdateResult.FAILED:
        if is_verbose and summary.details:
            output.say(summary.details, err=True)
        raise BarnabasError(summary.failure or "the pipeline failed")
    # Ctrl-C is how a pipeline without an end is meant to end.
    if summary.outcome is UpdateResult.STOPPED and not (is_endless and stop.signal_number == signal.SIGINT):
        return stop.exit_code or _FAILED
    return 0


def _check_settings(settings: Iterable[str]) -> None:
    """Nobody should believe that a setting counts which does not."""
    for name in settings:
        if name == "spark.master":
            raise click.UsageError("--conf spark.master: where Spark runs is said by --master")
        if name.startswith(_OURS):
            raise click.UsageError(f"--conf {name}: this is not for others to set, since pipelines need it as it is")


def _names(option: str, given: Sequence[str]) -> list[str]:
    names = []
    for part in given:
        found = [name.strip() for name in part.split(",") if name.strip()]
        if not found:
            # A variable of the shell that is not set, perhaps: nobody wants all tables by mistake, or none.
            raise click.UsageError(f"{option} {shlex.quote(part)} names no table")
        names += found
    return names


def _seconds(text: str) -> float:
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise click.UsageError(f"--every {text}: write a time, as in 500ms, 5s, 1m, 2h")
    seconds = float(found["number"]) * _UNITS_S[found["unit"]]
    if not seconds:
        raise click.UsageError(f"--every {text}: it must be some time, as in 500ms, 5s, 1m, 2h")
    if seconds > threading.TIMEOUT_MAX:
        raise click.UsageError(f"--every {text}: nobody can wait so long")
    return seconds
