"""`barnabas storage`: ids, formatting, what the directories of a node say of themselves. Kafka's `kafka-storage`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from barnabas.base.errors import BarnabasError
from barnabas.cli.main import FAILED
from barnabas.cli.output import say

if TYPE_CHECKING:
    from barnabas.broker.settings import BrokerSettings

_CONFIG = click.option("-c", "--config", required=True, metavar="FILE", help="The server.properties file of the node.")


@click.group()
def storage() -> None:
    """Format the directories of a node, look at them, or go on after a loss.

    \b
    Examples:
      barnabas storage format -t $(barnabas storage random-uuid) -c server.properties
      barnabas storage accept-loss -c server.properties
    """


@storage.command("random-uuid")
def random_uuid() -> None:
    """Print a new id, for a cluster or for anything else."""
    from random import SystemRandom

    from barnabas.base.ids import Uuid

    say(str(Uuid.random(SystemRandom())))


@storage.command("format")
@_CONFIG
@click.option("-t", "--cluster-id", required=True, metavar="ID", help="The id of the cluster; see random-uuid.")
@click.option("-g", "--ignore-formatted", is_flag=True, help="Leave directories alone that are formatted already.")
@click.option("-r", "--release-version", metavar="RELEASE", help="The release whose features to finalise, as 4.0-IV3.")
@click.option(
    "-f",
    "--feature",
    "features",
    metavar="NAME=LEVEL",
    multiple=True,
    help="The level of one feature; may be repeated.",
)
@click.option("-s", "--standalone", is_flag=True, help="A quorum of one whose voters may change. Not built yet.")
@click.option("-N", "--no-initial-controllers", is_flag=True, help="A node that joins a quorum later. Not built yet.")
@click.option("-I", "--initial-controllers", metavar="LIST", help="The first voters of a quorum. Not built yet.")
@click.option("-S", "--add-scram", "scram", metavar="CREDENTIAL", multiple=True, help="A first user. Not built yet.")
def format_(config: str, cluster_id: str, ignore_formatted: bool, **rest: Any) -> None:
    """Format the directories of a node for a cluster.

    Each gets a meta.properties, that of the metadata log also a bootstrap.checkpoint with the first records. Nothing is
    formatted over: directories that are formatted already stop the command, or are left alone with -g.

    \b
    Example:
      barnabas storage format -t $(barnabas storage random-uuid) -c server.properties
    """
    _refuse_what_is_not_built(config, cluster_id, **rest)
    from random import SystemRandom

    from barnabas.base.runtime import SystemClock
    from barnabas.broker.quorum.formatting import format_directories
    from barnabas.storage.real_files import RealFileSystem

    lines = format_directories(
        RealFileSystem(),
        _settings(config),
        cluster_id,
        SystemRandom(),
        ignore_formatted=ignore_formatted,
        now_ms=SystemClock().now_ms(),
    )
    for line in lines:
        say(line)


def _refuse_what_is_not_built(
    config: str,
    cluster_id: str,
    release_version: str | None,
    features: Sequence[str],
    standalone: bool,
    no_initial_controllers: bool,
    initial_controllers: str | None,
    scram: Sequence[str],
) -> None:
    from barnabas.broker.quorum.formatting import RELEASES, STATIC_VOTERS_ONLY, static_voter_lines
    from barnabas.metadata.features import METADATA_VERSION, METADATA_VERSION_BUILT

    dynamic = {
        "--standalone": standalone,
        "--no-initial-controllers": no_initial_controllers,
        "--initial-controllers": initial_controllers,
    }
    for option, is_given in dynamic.items():
        if is_given:
            settings = _settings(config)
            write = f"Write into {config}\n{static_voter_lines(settings)}\nand run" if not settings.voter_ids else "Run"
            command = f"barnabas storage format -t {cluster_id} -c {config}"
            raise BarnabasError(f"{option}: {STATIC_VOTERS_ONLY}. {write}\n    {command}")
    if scram:
        raise BarnabasError("--add-scram: authentication with SCRAM is not built yet")
    built = RELEASES[METADATA_VERSION_BUILT]
    if release_version is not None and release_version not in (built, built.partition("-")[0]):
        raise BarnabasError(f"--release-version {release_version}: only {built} is built")
    for feature in features:
        name, equals, level = feature.partition("=")
        if not equals or not level.isdecimal():
            raise click.UsageError(f"--feature {feature}: write it as NAME=LEVEL, as in metadata.version=25")
        allowed = METADATA_VERSION_BUILT if name == METADATA_VERSION else 0
        if int(level) != allowed:
            raise BarnabasError(f"--feature {feature}: only level {allowed} of {name} is built")


@storage.command()
@_CONFIG
@click.option("--json", "as_json", is_flag=True, help="One JSON object for a program.")
def info(config: str, as_json: bool) -> int:
    """Tell what the directories of a node say of themselves, and what is wrong with them.

    \b
    Example:
      barnabas storage info -c server.properties
    """
    from barnabas.broker.quorum.formatting import node_directories
    from barnabas.storage.meta_properties import meta_entries
    from barnabas.storage.real_files import RealFileSystem

    files = RealFileSystem()
    settings = _settings(config)
    found: list[str] = []
    metadata: dict[str, dict[str, str]] = {}
    problems: list[str] = []
    for path in sorted(node_directories(settings)):
        if not files.exists(path):
            problems.append(f"{path} does not exist")
        elif not files.is_directory(path):
            problems.append(f"{path} is not a directory")
        else:
            found.append(path)
            entries = meta_entries(files, path)
            if entries is None:
                problems.append(f"{path} is not formatted.")
            else:
                metadata[path] = dict(sorted(entries.items()))
    problems += _contradictions(settings, metadata)
    if as_json:
        from barnabas.cli.output import print_json

        print_json({"logDirectories": found, "metadata": metadata, "problems": problems})
    else:
        _print_info(found, metadata, problems)
    return FAILED if problems else 0


def _contradictions(settings: BrokerSettings, metadata: dict[str, dict[str, str]]) -> list[str]:
    """What the files say against each other or against the settings."""
    problems = []
    clusters = list(dict.fromkeys(entries.get("cluster.id", "") for entries in metadata.values()))
    if len(clusters) > 1:
        problems.append(f"the directories belong to different clusters: {', '.join(clusters)}")
    for path, entries in metadata.items():
        if entries.get("node.id", str(settings.node_id)) != str(settings.node_id):
            problems.append(f"{path} belongs to node {entries['node.id']}, but node.id is {settings.node_id}")
    return problems


def _print_info(found: list[str], metadata: dict[str, dict[str, str]], problems: list[str]) -> None:
    if not found:
        say("No directories specified.\n" if not problems else "No log directories found.\n")
    else:
        say("Found log directory:" if len(found) == 1 else "Found log directories:")
        for path in found:
            say(f"  {path}")
        say()
    # The ids of directories differ; the rest is told once if all agree.
    told = list(
        dict.fromkeys(", ".join(f"{name}={value}" for name, value in each.items()) for each in metadata.values())
    )
    for entries in told:
        say(f"Found metadata: {{{entries}}}\n")
    if problems:
        say("Found problem:" if len(problems) == 1 else "Found problems:")
        for problem in problems:
            say(f"  {problem}")
        say()


@storage.command("accept-loss")
@click.option("-c", "--config", metavar="FILE", help="The server.properties file of the node.")
@click.option("-d", "--directory", metavar="DIR", help="Instead: the one directory of a node, as of `barnabas up`.")
@click.option("--all", "all_", is_flag=True, help="All partitions that are damaged.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.argument("partitions", nargs=-1, metavar="[TOPIC-PARTITION]...")
def accept_loss(config: str | None, directory: str | None, all_: bool, yes: bool, partitions: Sequence[str]) -> int:
    """Go on without records that are lost.

    A node does not serve a partition whose files lack records that were safe on its disk. The best remedy is to
    restore the files. Where they are gone for good, this makes the partition usable with what is left: the node must be
    stopped, what is lost is shown, and you are asked. The lost offsets stay empty, so no other record gets them.

    Without a partition and without --all it only shows what is damaged, and ends with 1 if anything is.

    \b
    Examples:
      barnabas storage accept-loss -c server.properties
      barnabas storage accept-loss -c server.properties clicks-0 clicks-3
      barnabas storage accept-loss -d barnabas-data --all --yes
    """
    from barnabas.broker.single_node import single_node_settings
    from barnabas.cli.losses import Losses

    if (config is None) == (directory is None):
        raise click.UsageError("give either --config FILE or --directory DIR")
    settings = single_node_settings("127.0.0.1", 9092, directory or "") if config is None else _settings(config)

    if partitions and all_:
        raise click.UsageError("name partitions or give --all, not both")
    with Losses(settings) as losses:
        chosen = losses.choose(partitions)
        losses.show(chosen)
        if not chosen:
            return 0
        if not partitions and not all_:
            say("Nothing was changed. Name partitions, or give --all, to go on without these records.")
            return FAILED
        if not yes and not _is_sure():
            say("Nothing was changed.")
            return FAILED
        for partition in chosen:
            losses.accept(partition)
            say(f"{partition} can be used again, without these records.")
    return 0


def _is_sure() -> bool:
    try:
        return click.confirm("Go on without these records for ever?")
    except click.Abort:
        # Nobody is there to answer.
        say()
        return False


def _settings(path: str) -> BrokerSettings:
    from barnabas.base.properties import load_properties_file
    from barnabas.broker.settings import BrokerSettings

    return BrokerSettings.load(load_properties_file(path))
