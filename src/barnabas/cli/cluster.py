"""`barnabas cluster`: the id of a cluster, and brokers that it shall forget. Kafka's `kafka-cluster`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from barnabas.base.errors import BarnabasError
from barnabas.cli.admin_options import ClusterOptions
from barnabas.cli.kafka_options import GivenOptions, KafkaTool
from barnabas.cli.main import usage_text
from barnabas.cli.output import print_json, say, shown

if TYPE_CHECKING:
    from barnabas.client.admin import Admin

F = TypeVar("F", bound=Callable[..., Any])

_SERVER: Final = "--bootstrap-server"
_CONTROLLER: Final = "--bootstrap-controller"


class _Actions(click.Group):
    """Wrong calls end with 1, as with Kafka's tool."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as problem:
            raise click.ClickException(usage_text(problem)) from None


def _connection(function: F) -> F:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="JSON for programs."),
        click.option(
            "--command-config", "-c", "--config", "command_config", metavar="FILE", help="Settings of the client."
        ),
        click.option(_CONTROLLER, "-C", metavar="HOST:PORT", help="A controller to ask instead of a broker."),
        click.option(_SERVER, "-b", metavar="HOST:PORT", help="A broker to ask first; or several, by ','."),
    ):
        function = option(function)
    return function


@click.group(cls=_Actions)
def cluster() -> None:
    """Show a cluster's id and nodes; forget a broker.

    \b
    Examples:
      barnabas cluster cluster-id --bootstrap-server 127.0.0.1:9092
      barnabas cluster list-endpoints --bootstrap-server 127.0.0.1:9092
      barnabas cluster unregister --bootstrap-server 127.0.0.1:9092 --id 3
    """


@cluster.command("cluster-id", cls=KafkaTool)
@_connection
@click.pass_context
def cluster_id(
    ctx: click.Context,
    bootstrap_server: str | None,
    bootstrap_controller: str | None,
    command_config: str | None,
    as_json: bool,
) -> int:
    """Show the id of the cluster."""
    found = _reach(ctx, bootstrap_server, bootstrap_controller, command_config).run(_cluster_id)
    if found is None:
        raise BarnabasError("the cluster has no id: its brokers are older than 0.10.1")
    if as_json:
        print_json({"clusterId": found})
    else:
        say(f"Cluster ID: {found}")
    return 0


@cluster.command(cls=KafkaTool)
@_connection
@click.option("--id", "-i", "broker", type=int, metavar="ID", help="The broker to forget.")
@click.pass_context
def unregister(
    ctx: click.Context,
    bootstrap_server: str | None,
    bootstrap_controller: str | None,
    command_config: str | None,
    as_json: bool,
    broker: int,
) -> int:
    """Let the cluster forget a broker that was shut down for good.

    One that still runs leads nothing from then on, until it is started again.
    """
    reached = _reach(ctx, bootstrap_server, bootstrap_controller, command_config)
    GivenOptions(ctx).need("--id")
    reached.run(lambda admin: admin.unregister_broker(broker))
    if as_json:
        print_json({"unregistered": broker})
    else:
        say(f"Broker {broker} is no longer registered.")
    return 0


@cluster.command("list-endpoints", cls=KafkaTool)
@_connection
@click.option("--include-fenced-brokers", is_flag=True, help="Also brokers that are registered but not at work.")
@click.pass_context
def list_endpoints(
    ctx: click.Context,
    bootstrap_server: str | None,
    bootstrap_controller: str | None,
    command_config: str | None,
    as_json: bool,
    include_fenced_brokers: bool,
) -> int:
    """Show where the brokers are, or, asked of a controller, the controllers."""
    reached = _reach(ctx, bootstrap_server, bootstrap_controller, command_config)
    if bootstrap_controller is not None and include_fenced_brokers:
        raise click.UsageError(f"--include-fenced-brokers goes only with {_SERVER}")
    found = reached.run(lambda admin: admin.describe_cluster(include_fenced_brokers=include_fenced_brokers))
    kind = "broker" if bootstrap_controller is None else "controller"
    is_of_brokers = bootstrap_controller is None
    headings = ["ID", "HOST", "PORT", "RACK", *(["STATE"] if is_of_brokers else []), "ENDPOINT_TYPE"]
    rows = []
    for node in sorted(found.nodes, key=lambda each: each.node_id):
        state = ["fenced" if node.node_id in found.fenced else "unfenced"] if is_of_brokers else []
        rows.append([str(node.node_id), shown(node.host), str(node.port), shown(node.rack or "null"), *state, kind])
    if as_json:
        print_json([dict(zip(headings, row, strict=True)) for row in rows])
        return 0
    # Widths are those of Kafka's tool: hosts and racks as wide as the widest.
    widths = [10] * len(headings)
    widths[1] = max((len(row[1]) for row in rows), default=10)
    widths[3] = max((len(node.rack) for node in found.nodes if node.rack), default=10)
    widths[-1] = 15
    for row in (headings, *rows):
        say(" ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)))
    return 0


def _reach(ctx: click.Context, server: str | None, controller: str | None, config: str | None) -> ClusterOptions:
    if (server is None) == (controller is None):
        raise click.UsageError(f"give exactly one of {_SERVER} or {_CONTROLLER}")
    return ClusterOptions(server, config, controller)


async def _cluster_id(admin: Admin) -> str | None:
    return (await admin.describe_cluster()).cluster_id
