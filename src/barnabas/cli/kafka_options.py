"""What our tools with Kafka counterparts share: options that behave as people know them from Kafka's.

A call that is wrong ends with 1, as with Kafka's tools, and is told in one line. An option that takes one value cannot
be given twice, because the first value would be lost without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping
from typing import Any, Final, TypeVar

import click

from barnabas.cli.main import FAILED, tell_version, usage_text
from barnabas.cli.output import say

F = TypeVar("F", bound=Callable[..., Any])

_ORDER: Final = "barnabas.options.order"


class KafkaTool(click.Command):
    """A command whose options were named by Kafka."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as problem:
            raise click.ClickException(usage_text(problem)) from None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args:
            say(ctx.get_help(), err=True)
            ctx.exit(FAILED)
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        seen: set[str] = set()
        for option in order:
            name = option.opts[0]
            if name in seen and isinstance(option, click.Option) and not (option.multiple or option.is_flag):
                raise click.UsageError(f"{name} is given more than once", ctx)
            seen.add(name)
        ctx.meta[_ORDER] = [option.opts[0] for option in order]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as problem:
            problem.ctx = problem.ctx or ctx
            raise click.ClickException(usage_text(problem)) from None


class GivenOptions:
    """Which options stand on the command line, and what may stand beside what."""

    def __init__(self, ctx: click.Context) -> None:
        meta: MutableMapping[str, Any] = ctx.meta
        #: As they were given, with repetitions.
        self.order: Final[list[str]] = meta[_ORDER]
        self._names = frozenset(self.order)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def among(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name in self]

    def exactly_one(self, *names: str) -> str:
        """The one action; `click.UsageError` if there is none, or several."""
        found = self.among(names)
        if len(found) != 1:
            said = f"not {' and '.join(found)}" if found else "there is none"
            raise click.UsageError(f"give exactly one of {alternatives(names)}: {said}")
        return found[0]

    def need(self, *names: str, why: str = "") -> None:
        for name in names:
            if name not in self:
                raise click.UsageError(f"{name} is missing{why and ' ' + why}")

    def need_one_of(self, *names: str, why: str = "") -> None:
        if not self.among(names):
            raise click.UsageError(f"{alternatives(names)} is missing{why and ' ' + why}")

    def only_with(self, name: str, *actions: str) -> None:
        """An option that means something to these actions alone."""
        if name in self and not self.among(actions):
            raise click.UsageError(f"{name} goes only with {alternatives(actions)}")

    def exclude(self, name: str, *others: str, hint: str = "") -> None:
        if name in self:
            for other in self.among(others):
                raise click.UsageError(f"{name} does not go with {other}{hint}")

    def at_most_one(self, *names: str) -> None:
        found = self.among(names)
        if len(found) > 1:
            raise click.UsageError(f"{found[0]} does not go with {found[1]}")


def alternatives(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def connection(*, controllers: bool = False) -> Callable[[F], F]:
    """The options by which a tool finds the cluster, and `--json` and `--version`."""
    options = [
        click.option("--bootstrap-server", metavar="HOST:PORT", help="A broker to ask first; or several, by ','."),
        click.option("--command-config", metavar="FILE", help="Settings of the client, as in client.properties."),
        click.option("--json", "as_json", is_flag=True, help="JSON for programs."),
        version_option(),
    ]
    if controllers:
        text = "A controller to ask instead of a broker; or several, by ','."
        options.insert(1, click.option("--bootstrap-controller", metavar="HOST:PORT", help=text))

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def version_option() -> Callable[[F], F]:
    return click.option(
        "--version",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=tell_version,
        help="Show the version and exit.",
    )


def action(name: str, help: str) -> Callable[[F], F]:
    """An option that says what is to be done. Which one it is, `GivenOptions` tells."""
    return click.option(name, is_flag=True, expose_value=False, help=help)


def flag(name: str, help: str) -> Callable[[F], F]:
    """An option without a value that only `GivenOptions` is asked for."""
    return click.option(name, is_flag=True, expose_value=False, help=help)
