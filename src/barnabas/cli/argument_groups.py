"""Tools whose actions are words, as Kafka makes them: `kafka-features --bootstrap-server HOST:PORT describe`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from barnabas.cli.admin_options import ClusterOptions
from barnabas.cli.main import usage_text

F = TypeVar("F", bound=Callable[..., Any])

SERVER: Final = "--bootstrap-server"
CONTROLLER: Final = "--bootstrap-controller"


class Actions(click.Group):
    """Wrong calls end with 1, as with Kafka's tools."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.exceptions.NoArgsIsHelpError:
            raise
        except click.UsageError as problem:
            raise click.ClickException(usage_text(problem)) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as problem:
            raise click.ClickException(usage_text(problem)) from None


class Action(click.Command):
    """One of the words, with options of its own."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.NoSuchOption as problem:
            raise click.ClickException(usage_text(_of_the_tool(problem, info_name, parent) or problem)) from None
        except click.UsageError as problem:
            raise click.ClickException(usage_text(problem)) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as problem:
            problem.ctx = problem.ctx or ctx
            raise click.ClickException(usage_text(problem)) from None


def _of_the_tool(
    problem: click.NoSuchOption, action: str | None, tool: click.Context | None
) -> click.UsageError | None:
    """What is said of an option that there is, but at another place."""
    name = problem.option_name
    if tool is None or not any(name in each.opts for each in tool.command.params):
        return None
    return click.UsageError(f"No such option: {name}; put {name} before {action}", problem.ctx)


def connection_before_action(function: F) -> F:
    """The options by which a tool finds the cluster; they stand before the action."""
    for option in (
        click.option("--command-config", metavar="FILE", help="Settings of the client, as in client.properties."),
        click.option(CONTROLLER, metavar="HOST:PORT", help="A controller to ask instead of a broker."),
        click.option(SERVER, metavar="HOST:PORT", help="A broker to ask first; or several, by ','."),
    ):
        function = option(function)
    return function


def cluster_of(server: str | None, controller: str | None, config: str | None) -> ClusterOptions:
    if (server is None) == (controller is None):
        raise click.UsageError(f"give exactly one of {SERVER} or {CONTROLLER}")
    return ClusterOptions(server, config, controller)
