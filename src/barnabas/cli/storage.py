"""`barnabas storage`: ids, formatting, what the directories of a node say of themselves. Kafka's `kafka-storage`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.main import FAILED
from barnabas.cli.output import say

if TYPE_CHECKING:
    from barnabas.broker.settings import BrokerSettings
    from barnabas.raft.voters import Voter

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
@click.option("-s", "--standalone", is_flag=True, help="This controller is the only voter at first; others may join.")
@click.option("-N", "--no-initial-controllers", is_flag=True, help="This controller joins a quorum that exists.")
@click.option(
    "-I",
    "--initial-controllers",
    metavar="ID@HOST:PORT:DIRECTORY_ID,...",
    help="The first voters, the same list on every node; the directory ids are of random-uuid.",
)
@click.option("-S", "--add-scram", "scram", metavar="CREDENTIAL", multiple=True, help="A first user; may be repeated.")
def format_(
    config: str, cluster_id: str, ignore_formatted: bool, features: Sequence[str], scram: Sequence[str], **rest: Any
) -> None:
    """Format the directories of a node for a cluster.

    Each gets a meta.properties, that of the metadata log also a bootstrap.checkpoint with the first records. Nothing is
    formatted over: directories that are formatted already stop the command, or are left alone with -g.

    Who votes is said by controller.quorum.voters in the file. Without it the log says so, and each controller is
    formatted with one of -s, -I and -N; a broker needs none of them.

    \b
    Examples:
      barnabas storage format -t $(barnabas storage random-uuid) -c server.properties
      barnabas storage format --standalone -t $(barnabas storage random-uuid) -c server.properties
      barnabas storage format -t ID -c server.properties --add-scram 'SCRAM-SHA-256=[name=ann,password=secret]'
    """
    from random import SystemRandom

    from barnabas.base.runtime import SystemClock
    from barnabas.base.system_runtime import new_randomness
    from barnabas.broker.quorum.format_options import format_options
    from barnabas.broker.quorum.formatting import format_directories
    from barnabas.broker.quorum.scram_options import parse_scram
    from barnabas.storage.real_files import RealFileSystem

    quorum = ("standalone", "initial_controllers", "no_initial_controllers")
    given = [f"--{each.replace('_', '-')}" for each in quorum if rest[each] not in (None, False)]
    if len(given) > 1:
        raise click.UsageError(f"give only one of {' and '.join(given)}")
    settings = _settings(config)
    options = format_options(settings, SystemRandom(), features=features, **rest)
    lines = format_directories(
        RealFileSystem(),
        settings,
        cluster_id,
        SystemRandom(),
        ignore_formatted=ignore_formatted,
        now_ms=SystemClock().now_ms(),
        metadata_version=options.metadata_version,
        elr_version=options.elr_version,
        transaction_version=options.transaction_version,
        voters=options.voters,
        users=[parse_scram(each, new_randomness()) for each in scram],
    )
    for line in lines:
        say(line)


@storage.command()
@_CONFIG
@click.option("--json", "as_json", is_flag=True, help="One JSON object for a program.")
def info(config: str, as_json: bool) -> int:
    """Tell what the directories of a node say of themselves, and what is wrong with them.

    \b
    Example:
      barnabas storage info -c server.properties
    """
    from barnabas.broker.quorum.formatting import node_directories, read_first_voters
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
    first_voters = read_first_voters(files, settings.metadata_dir) if settings.metadata_dir in metadata else None
    voters = [_shown_voter(each) for each in first_voters or ()]
    if as_json:
        from barnabas.cli.output import print_json

        values = {"logDirectories": found, "metadata": metadata, "problems": problems}
        print_json(values | ({"firstVoters": voters} if voters else {}))
    else:
        _print_info(found, metadata, voters, problems)
    return FAILED if problems else 0


def _shown_voter(voter: Voter) -> str:
    """As `--initial-controllers` takes it."""
    host, port = voter.address
    shown_host = f"[{host}]" if ":" in host else host
    return f"{voter.key.node_id}@{shown_host}:{port}:{voter.key.directory_id}"


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


def _print_info(found: list[str], metadata: dict[str, dict[str, str]], voters: list[str], problems: list[str]) -> None:
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
    if voters:
        say(f"Found first voters: {','.join(voters)}\n")
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
