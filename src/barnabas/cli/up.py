"""`barnabas up`: a node for this machine, with one command."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from barnabas.base.errors import BarnabasError
from barnabas.base.properties import parse_overrides
from barnabas.broker.quorum.formatting import node_directories
from barnabas.broker.settings import BrokerSettings
from barnabas.broker.settings.process_log import ProcessLogSettings
from barnabas.broker.single_node import format_if_new, single_node_settings
from barnabas.cli.running import log_as, run_node
from barnabas.storage.errors import DirectoryInUseError
from barnabas.storage.files import FileSystem

DEFAULT_DIRECTORY: Final = "barnabas-data"
DEFAULT_CLUSTER_DIRECTORY: Final = "barnabas-cluster"
_IN_MEMORY: Final = "/memory"
_REBALANCE_DELAY: Final = "group.initial.rebalance.delay.ms"
_NOWHERE: Final = ("0.0.0.0", "::")
_NO_REBALANCE_DELAY: Final = f"{_REBALANCE_DELAY}=0: new groups do not wait for more members (3000 in Kafka)"

_ANOTHER_NODE: Final = (
    "is a node running already? A second one needs a --data-dir of its own, or --ephemeral, "
    "and another port with --listen"
)


@click.command()
@click.option("--data-dir", metavar="DIR", help=f"Where the data lies.  [default: {DEFAULT_DIRECTORY}]")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:9092",
    show_default=True,
    help="Where clients connect; port 0 picks a free one.",
)
@click.option("--ephemeral", is_flag=True, help="Keep everything in memory and forget it at the end.")
@click.option(
    "--override", "overrides", metavar="NAME=VALUE", multiple=True, help="Any setting of a broker; may be repeated."
)
@click.option("--nodes", type=click.IntRange(1), help="So many nodes, each a process that is broker and controller.")
@click.option("--controllers", type=click.IntRange(1), help="So many processes that are controllers alone.")
@click.option("--brokers", type=click.IntRange(1), help="So many processes that are brokers alone.")
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Where /metrics, /healthz and /readyz are; of a cluster, and the ports after it.",
)
@click.option("--log-format", type=click.Choice(["text", "json"]), help="How lines of the log look.  [default: text]")
@click.option("-v", "--verbose", is_flag=True, help="Tell on standard error what the node does.")
def up(
    data_dir: str | None,
    listen: str,
    ephemeral: bool,
    overrides: Sequence[str],
    nodes: int | None,
    controllers: int | None,
    brokers: int | None,
    metrics: str | None,
    log_format: str | None,
    verbose: bool,
) -> None:
    """Start a node: broker and controller in one process. Or a cluster on this machine.

    The directory is formatted when it is first used. Once the node answers, the line `ready: bootstrap HOST:PORT` is
    printed, with the address for clients; Ctrl-C stops it cleanly. The node's log goes to standard error: warnings and
    errors, and with -v all that it does.

    Members of a new group need not wait for others: group.initial.rebalance.delay.ms is 0 here, unless --override says
    otherwise. Kafka's default, which `barnabas server start` has, is 3000.

    \b
    Examples:
      barnabas up
      barnabas up --listen 127.0.0.1:0 --ephemeral
      barnabas up --data-dir /var/lib/barnabas --override num.partitions=6
      barnabas up --listen 0.0.0.0:9092 --override advertised.listeners=PLAINTEXT://this-machine:9092
      barnabas up --nodes 3 --data-dir cluster
      barnabas up --controllers 3 --brokers 2 --data-dir cluster
      barnabas up --metrics 127.0.0.1:9404

    With --nodes, or --controllers and --brokers, brokers listen at the port of --listen and those after it. Files, data
    and logs of all nodes are in the data directory; started again with the same numbers, the cluster goes on. Topics
    have three replicas, or as many as there are brokers (default.replication.factor), and with three or more brokers
    acks=all needs two of them (min.insync.replicas=2).
    """
    if ephemeral and data_dir:
        raise click.UsageError("--ephemeral keeps nothing, so it takes no --data-dir")
    host, port = _address(listen)
    options = {"logging.format": log_format, "metrics.listener": metrics}
    given = parse_overrides([*overrides, *(f"{name}={value}" for name, value in options.items() if value is not None)])
    roles = _roles(nodes, controllers, brokers)
    if metrics is not None:
        _check_metrics(metrics)
        if "listeners" not in given:
            _check_apart(listen, metrics, roles or {1: "broker,controller"})
    if roles is not None:
        if ephemeral:
            raise click.UsageError("nodes of a cluster are processes of their own, and keep nothing in memory")
        from barnabas.cli.up_cluster import LocalCluster, run_cluster

        cluster = LocalCluster(Path(data_dir or DEFAULT_CLUSTER_DIRECTORY), host, port, roles)
        run_cluster(cluster, given, verbose=verbose)
        return
    log = ProcessLogSettings.of(given)
    log_as(log, logging.INFO if verbose else logging.WARNING)
    directory = _IN_MEMORY if ephemeral else data_dir or DEFAULT_DIRECTORY
    if host in _NOWHERE and not given.keys() & {"listeners", "advertised.listeners"}:
        raise click.UsageError(_no_address(listen, port))
    settings = single_node_settings(host, port, directory, given)
    files = _memory() if ephemeral else _disk()

    place = (
        "in memory, and gone when the node stops"
        if ephemeral
        else f"in {', '.join(map(os.path.abspath, node_directories(settings)))}"
    )
    what = "all that the node does" if verbose else "warnings and errors; -v tells all"
    notes = [
        f"data: {place}",
        f"log: {log.logging_file or 'this output'}, {what}",
        "Ctrl-C stops the node",
    ]
    if _REBALANCE_DELAY not in given:
        notes.append(_NO_REBALANCE_DELAY)
    try:
        run_node(settings, files, lambda runtime: format_if_new(files, settings, runtime), notes, farewell="stopped")
    except DirectoryInUseError as error:
        raise BarnabasError(f"{error}: {_ANOTHER_NODE}") from error


def _roles(nodes: int | None, controllers: int | None, brokers: int | None) -> dict[int, str] | None:
    """What each node of a cluster is, by its id; None for a node that is alone."""
    if nodes is not None and (controllers is not None or brokers is not None):
        raise click.UsageError("give either --nodes, or --controllers and --brokers")
    if (controllers is None) != (brokers is None):
        raise click.UsageError("--controllers and --brokers belong together")
    if controllers is not None and brokers is not None:
        kinds = ["controller"] * controllers + ["broker"] * brokers
        return dict(enumerate(kinds, 1))
    return None if nodes is None else dict.fromkeys(range(1, nodes + 1), "broker,controller")


def _no_address(listen: str, port: int) -> str:
    name = socket.gethostname()
    return (
        f"--listen {listen}: clients cannot connect to that, so say which name or address they shall use, as in "
        f"--override advertised.listeners=PLAINTEXT://{name}:{port or 9092}"
    )


def _address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise click.UsageError(f"--listen {listen}: write it as HOST:PORT")
    return host.strip("[]") or "127.0.0.1", int(port)


def _check_metrics(metrics: str) -> None:
    """Here rather than with all settings: there it is called by a name that nobody wrote."""
    try:
        BrokerSettings.declared()["metrics.listener"].convert(metrics)
    except ValueError:
        raise click.UsageError(f"--metrics {metrics}: write it as HOST:PORT, 127.0.0.1:9404 say") from None


def _check_apart(listen: str, metrics: str, roles: Mapping[int, str]) -> None:
    """Brokers listen at the port of --listen and those after it; the metrics of all nodes do so from theirs on."""
    host, port = _address(listen)
    metrics_host, _, first = metrics.removeprefix("SSL://").rpartition(":")
    if host != metrics_host.strip("[]") or not port or not int(first):
        return
    taken = range(port, port + sum("broker" in each for each in roles.values()))
    both = sorted({*taken} & {*range(int(first), int(first) + len(roles))})
    if both:
        raise click.UsageError(
            f"--listen {listen} and --metrics {metrics} both name port {both[0]} of {host}: give one of them another"
        )


def _disk() -> FileSystem:
    from barnabas.storage.real_files import RealFileSystem

    return RealFileSystem()


def _memory() -> FileSystem:
    try:
        from barnabas.testing.memory_files import MemoryFileSystem
    except ImportError as failure:
        raise BarnabasError(f"--ephemeral cannot be used here: {failure}") from failure
    return MemoryFileSystem()
