"""`barnabas server init|start|stop`: a node from Kafka's own `server.properties`."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from barnabas.base.errors import BarnabasError
from barnabas.base.log_context import logger
from barnabas.cli.output import say

_log = logger("barnabas.cli")

# A node that waits for others has not failed: it goes on by itself as soon as they are there. One that reads what they
# have will soon be ready.
_TOLD_AT_THE_START: Final = (b"ready: ", b"waiting: no controller leads")


@click.group()
def server() -> None:
    """Start and stop a node that is described by a server.properties file, or write such files to begin with."""


@server.command()
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--nodes", type=click.IntRange(1, 99), help="For how many nodes, each of them broker and controller.")
@click.option("--host", "hosts", metavar="HOST", multiple=True, help="Where it runs; repeated, one for each node.")
def init(directory: Path, nodes: int | None, hosts: Sequence[str]) -> None:
    """Write files of settings to DIR/config/kraft, to be edited.

    They are server.properties for a node that is broker and controller, and broker.properties and controller.properties
    for nodes with one role. With --nodes they are server-1.properties and so on, a file for each node of a cluster: on
    one host with ports of their own, or on a host each.

    \b
    Examples:
      barnabas server init .
      barnabas server init cluster --nodes 3
      barnabas server init cluster --host a.example.org --host b.example.org --host c.example.org
    """
    from barnabas.cli.server_files import files_of_nodes, files_of_one_machine, shown_host, write_files

    shown = [shown_host(each) for each in hosts or ("localhost",)]
    count = len(shown) if nodes is None else nodes
    if len(shown) not in (1, count):
        raise click.UsageError(f"--nodes {count} needs one --host for all, or {count}; {len(shown)} are given")
    if count == 1:
        made = files_of_one_machine(directory, shown[0])
    else:
        made = files_of_nodes(directory, shown * count if len(shown) == 1 else shown)
    write_files(made)
    for each in made:
        say(f"Wrote {each.path}: {each.purpose}.")
    same_id = ", with the same CLUSTER_ID for all" if count > 1 else ""
    say(f"Edit them, make a CLUSTER_ID with 'barnabas storage random-uuid', and for each node{same_id}:")
    say(f"    barnabas storage format -t CLUSTER_ID -c {made[0].path}")
    say(f"    barnabas server start {made[0].path}")


@server.command()
@click.argument("properties", metavar="FILE.properties", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--override", "overrides", metavar="NAME=VALUE", multiple=True, help="Stands over the file; may be repeated."
)
@click.option(
    "--daemon", "-daemon", is_flag=True, help="Return once the node answers or waits for others, and let it run on."
)
@click.option(
    "--log-file",
    metavar="FILE",
    help="Log to this file instead of standard error; when it is full it is renamed to FILE.1 and begun anew.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="How its lines look; stands over logging.format.  [default: text]",
)
@click.option("-q", "--quiet", is_flag=True, help="Tell warnings and errors only.")
def start(
    properties: str,
    overrides: Sequence[str],
    daemon: bool,
    log_file: str | None,
    log_format: str | None,
    quiet: bool,
) -> None:
    """Run the node of FILE.properties in the foreground.

    The directories must be formatted: see `barnabas storage format`. With --daemon the log is server.log in the
    directory that LOG_DIR names, `logs` if it names none, and server.out there has what is printed beside it.

    \b
    Examples:
      barnabas storage format -t $(barnabas storage random-uuid) -c server.properties
      barnabas server start server.properties --override log.retention.hours=24
    """
    from barnabas.base.properties import load_properties_file, parse_overrides
    from barnabas.broker.settings.process_log import ProcessLogSettings

    sources = load_properties_file(properties), parse_overrides(overrides)
    options = {"logging.file": log_file, "logging.format": log_format}
    log = ProcessLogSettings.of(*sources, {name: each for name, each in options.items() if each is not None})
    if daemon:
        arguments = [each for text in overrides for each in ("--override", text)] + ["-q"] * quiet
        arguments += ["--log-format", log_format] if log_format is not None else []
        _start_daemon(properties, arguments, log.logging_file)
        return
    from barnabas.broker.settings import BrokerSettings
    from barnabas.cli.running import log_as, run_node
    from barnabas.storage.real_files import RealFileSystem

    log_as(log, logging.WARNING if quiet else logging.INFO)
    with _ending_in_the_log() if log.logging_file is not None else contextlib.nullcontext():
        run_node(BrokerSettings.load(*sources), RealFileSystem())


@contextlib.contextmanager
def _ending_in_the_log() -> Iterator[None]:
    """Also what ends the node stands in its log: it is where people look."""
    try:
        yield
    except (BarnabasError, OSError) as problem:
        _log.critical("Exiting: %s", problem)
        raise


def _start_daemon(properties: str, arguments: Sequence[str], log_file: str | None) -> None:
    """As Kafka's script: the log and what is printed go to files in LOG_DIR. But wait until the node answers, says for
    which others it waits, or has failed."""
    from barnabas.cli.log_files import private_output

    directory = Path(os.environ.get("LOG_DIR", "logs"))
    log_path = os.path.abspath(log_file or directory / "server.log")
    output = directory / "server.out"
    arguments = [*arguments, "--log-file", log_path]
    with private_output(output) as printed:
        start = printed.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", "barnabas", "server", "start", os.path.abspath(properties), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            start_new_session=True,
        )
    while process.poll() is None:
        with output.open("rb") as printed:
            printed.seek(start)
            told_line = next((line for line in printed if line.startswith(_TOLD_AT_THE_START)), None)
            metrics = next((line for line in printed if line.startswith(b"metrics: ")), None)
        if told_line is not None and told_line.endswith(b"\n"):
            say(f"{told_line.decode().strip()} (process {process.pid}, log in {log_path})")
            if metrics is not None:
                say(metrics.decode().strip())
            return
        time.sleep(0.05)
    with output.open(encoding="utf-8", errors="replace") as text:
        text.seek(start)
        told = text.read().strip()
    # What went wrong may take several lines; before it there may be others, of Python's say.
    reason = told.rpartition("barnabas: ")[2] or "it said nothing"
    raise BarnabasError(f"the node did not start (see {log_path} and {output}): {reason}")


@server.command()
@click.argument("properties", metavar="[FILE.properties]", required=False)
@click.option("--timeout", "timeout_s", default=60.0, show_default=True, help="Seconds to wait for the end.")
def stop(properties: str | None, timeout_s: float) -> None:
    """Stop the node of FILE.properties, or all that were started with `server start`, by SIGTERM."""
    found = _running_nodes(os.path.abspath(properties) if properties else None)
    if not found:
        raise BarnabasError("no node that was started with `barnabas server start` is running")
    for process_id in found:
        os.kill(process_id, signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    for process_id in found:
        while _is_alive(process_id):
            if time.monotonic() > deadline:
                raise BarnabasError(f"process {process_id} has not stopped after {timeout_s:g} s; it is still stopping")
            time.sleep(0.05)
        say(f"stopped: process {process_id}")


def _running_nodes(properties: str | None) -> list[int]:
    """The processes of this user that run a server, as `ps` tells them."""
    told = subprocess.run(["ps", "-x", "-ww", "-o", "pid=,command="], capture_output=True, text=True, check=True).stdout
    found = []
    for line in told.splitlines():
        process_id, _, command = line.strip().partition(" ")
        arguments = _arguments_of_barnabas(command.split())
        if arguments[:2] != ["server", "start"] or "--daemon" in arguments or "-daemon" in arguments:
            continue
        files = [word for word in arguments if word.endswith(".properties")]
        if properties is None or any(_path_of(int(process_id), each) == properties for each in files):
            found.append(int(process_id))
    return found


def _arguments_of_barnabas(words: list[str]) -> list[str]:
    """What follows the command, if it is the process's own: a shell whose text mentions it must not be stopped."""
    program = [os.path.basename(word) for word in words[:3]]
    if program[:1] == ["barnabas"]:
        return words[1:]
    if program and program[0].startswith("python"):
        if program[1:2] == ["barnabas"]:
            return words[2:]
        if words[1:3] == ["-m", "barnabas"]:
            return words[3:]
    return []


def _path_of(process_id: int, path: str) -> str:
    """A path of another process, seen from where that process is."""
    try:
        return os.path.normpath(os.path.join(os.readlink(f"/proc/{process_id}/cwd"), path))
    except OSError:
        return os.path.abspath(path)


def _is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    # A process that has ended but whose parent has not looked yet has ended all the same.
    told = subprocess.run(["ps", "-o", "stat=", "-p", str(process_id)], capture_output=True, text=True, check=False)
    return bool(told.stdout.strip()) and not told.stdout.strip().startswith("Z")
