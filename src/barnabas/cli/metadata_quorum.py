"""`barnabas metadata-quorum`: who leads the metadata quorum, and how far its replicas are. Kafka's
`kafka-metadata-quorum`, with its output."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click

from barnabas.base.errors import BarnabasError
from barnabas.cli.admin_options import ClusterOptions
from barnabas.cli.argument_groups import Action, Actions, cluster_of, connection_before_action
from barnabas.cli.output import print_json, say, shown

if TYPE_CHECKING:
    from barnabas.client.admin import Admin
    from barnabas.client.admin.quorum import QuorumInfo, QuorumReplica

_HEADINGS: Final = (
    "NodeId",
    "DirectoryId",
    "LogEndOffset",
    "Lag",
    "LastFetchTimestamp",
    "LastCaughtUpTimestamp",
    "Status",
)
_NOT_BUILT: Final = (
    "is not built yet: the voters of a running quorum cannot be changed; format it with the voters that it shall have "
    "('barnabas storage format --initial-controllers')"
)


@click.group(cls=Actions)
@connection_before_action
@click.pass_context
def metadata_quorum(
    ctx: click.Context, bootstrap_server: str | None, bootstrap_controller: str | None, command_config: str | None
) -> None:
    """Show who leads the metadata quorum, and how far its replicas are.

    \b
    Examples:
      barnabas metadata-quorum --bootstrap-server 127.0.0.1:9092 describe --status
      barnabas metadata-quorum --bootstrap-controller 127.0.0.1:9093 describe --replication --human-readable
    """
    ctx.obj = (bootstrap_server, bootstrap_controller, command_config)


@metadata_quorum.command(cls=Action)
@click.option("--status", is_flag=True, help="The leader, the voters, and how far behind the slowest is.")
@click.option("--replication", is_flag=True, help="How far each replica is.")
@click.option("--human-readable", is_flag=True, help="With --replication: how long ago, not when.")
@click.option("--json", "as_json", is_flag=True, help="JSON for programs.")
@click.pass_context
def describe(ctx: click.Context, status: bool, replication: bool, human_readable: bool, as_json: bool) -> int:
    """Show the quorum."""
    if status == replication:
        raise click.UsageError("give exactly one of --status or --replication")
    if status and human_readable:
        raise click.UsageError("--human-readable goes only with --replication")
    cluster = cluster_of(*ctx.obj)
    if status:
        _show_status(cluster, as_json)
    else:
        _show_replication(cluster.run(lambda admin: admin.describe_metadata_quorum()), human_readable, as_json)
    return 0


@metadata_quorum.command("add-controller", cls=Action)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
def add_controller(dry_run: bool) -> int:
    """Not built yet: let a controller vote."""
    raise BarnabasError(f"metadata-quorum add-controller {_NOT_BUILT}")


@metadata_quorum.command("remove-controller", cls=Action)
@click.option("--controller-id", "-i", type=int, help="The controller.")
@click.option("--controller-directory-id", "-d", help="The directory of its metadata log.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
def remove_controller(controller_id: int | None, controller_directory_id: str | None, dry_run: bool) -> int:
    """Not built yet: let a controller not vote any more."""
    raise BarnabasError(f"metadata-quorum remove-controller {_NOT_BUILT}")


# Status


def _show_status(cluster: ClusterOptions, as_json: bool) -> None:
    async def ask(admin: Admin) -> tuple[str | None, QuorumInfo]:
        return (await admin.describe_cluster()).cluster_id, await admin.describe_metadata_quorum()

    cluster_id, quorum = cluster.run(ask)
    leader = _leader(quorum)
    slowest = min(quorum.voters, key=lambda each: each.log_end_offset)
    lag_ms = -1
    if slowest is leader:
        lag_ms = 0
    elif leader.last_caught_up_ms is not None and slowest.last_caught_up_ms is not None:
        lag_ms = leader.last_caught_up_ms - slowest.last_caught_up_ms
    lines: dict[str, object] = {
        "ClusterId": cluster_id,
        "LeaderId": quorum.leader_id,
        "LeaderEpoch": quorum.leader_epoch,
        "HighWatermark": quorum.high_watermark,
        "MaxFollowerLag": leader.log_end_offset - slowest.log_end_offset,
        "MaxFollowerLagTimeMs": lag_ms,
    }
    if as_json:
        voters, observers = ([_as_json(quorum, each) for each in those] for those in (quorum.voters, quorum.observers))
        print_json(lines | {"CurrentVoters": voters, "CurrentObservers": observers})
        return
    lines["CurrentVoters"] = _replicas(quorum, quorum.voters)
    lines["CurrentObservers"] = _replicas(quorum, quorum.observers)
    for name, value in lines.items():
        say(f"{name + ':':<24}{shown(value)}")


def _leader(quorum: QuorumInfo) -> QuorumReplica:
    leader = next((each for each in quorum.voters if each.replica_id == quorum.leader_id), None)
    if leader is None:
        raise BarnabasError(f"nobody leads the quorum: {quorum.leader_id} is not among its voters")
    return leader


def _as_json(quorum: QuorumInfo, replica: QuorumReplica) -> dict[str, object]:
    found: dict[str, object] = {"id": replica.replica_id}
    if any(bytes(replica.directory_id)):
        found["directoryId"] = str(replica.directory_id)
    endpoints = quorum.endpoints.get(replica.replica_id, ())
    if endpoints:
        found["endpoints"] = [f"{each.name}://{_host(each.host)}:{each.port}" for each in endpoints]
    return found


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _replicas(quorum: QuorumInfo, replicas: tuple[QuorumReplica, ...]) -> str:
    """As Kafka's tool writes them: nearly JSON."""
    texts = []
    for replica in replicas:
        parts = []
        for name, value in _as_json(quorum, replica).items():
            text = f'"{value}"' if isinstance(value, str) else str(value)
            if isinstance(value, list):
                text = "[" + ", ".join(f'"{each}"' for each in value) + "]"
            parts.append(f'"{name}": {text}')
        texts.append("{" + ", ".join(parts) + "}")
    return "[" + ", ".join(texts) + "]"


# Replication


def _show_replication(quorum: QuorumInfo, human_readable: bool, as_json: bool) -> None:
    leader = _leader(quorum)
    followers = [each for each in quorum.voters if each is not leader]
    rows = [
        _row(leader, each, status, human_readable)
        for status, those in (("Leader", [leader]), ("Follower", followers), ("Observer", quorum.observers))
        for each in those
    ]
    if as_json:
        print_json([dict(zip(_HEADINGS, row, strict=True)) for row in rows])
        return
    texts = [_HEADINGS, *(tuple(map(str, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for text in texts:
        # A tab behind every column, as Kafka's tool writes them.
        say("".join(f"{cell:<{width}}\t" for cell, width in zip(text, widths, strict=True)))


def _row(leader: QuorumReplica, replica: QuorumReplica, status: str, human_readable: bool) -> tuple[object, ...]:
    return (
        replica.replica_id,
        str(replica.directory_id),
        replica.log_end_offset,
        leader.log_end_offset - replica.log_end_offset,
        _when(replica.last_fetch_ms, human_readable),
        _when(replica.last_caught_up_ms, human_readable),
        status,
    )


def _when(at_ms: int | None, human_readable: bool) -> str:
    if at_ms is None:
        return "-1"
    return f"{max(0, int(time.time() * 1000) - at_ms)} ms ago" if human_readable else str(at_ms)
