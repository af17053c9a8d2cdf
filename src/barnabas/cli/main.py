"""The `barnabas` command: finds the tool and loads nothing else, so that each starts as fast as it can.

Every tool ends with 0 when it did what it was asked for, 1 when it could not, 2 when it was called wrongly; those with
options of Kafka's making end with 1 then too, as Kafka's do (see `kafka_options`). When nobody reads its output any
more it ends without a word, with 141, as a shell tells of SIGPIPE. What goes wrong is told in words on standard error,
beginning with `barnabas:`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import click

from barnabas.base.errors import BarnabasError
from barnabas.base.foreign_text import escaped_lines

FAILED: Final = 1
WRONGLY_CALLED: Final = 2
#: As a shell tells of tools that SIGINT, or SIGPIPE, ended.
_INTERRUPTED: Final = 130
_UNHEARD: Final = 141


class Tool(NamedTuple):
    """Where a tool is, and one line that tells what it is for, so that help needs not load it."""

    place: str
    help: str


TOOLS: Final[Mapping[str, Tool]] = {
    "up": Tool("barnabas.cli.up:up", "Start a node on this machine with one command."),
    "demo": Tool("barnabas.cli.demo:demo", "Watch a node, clicks and a pipeline at work."),
    "server": Tool("barnabas.cli.server:server", "Start and stop a node from a server.properties file."),
    "storage": Tool("barnabas.cli.storage:storage", "Format the directories of a node, or look at them."),
    "certs": Tool("barnabas.cli.certs:certs", "Make certificates for trying out TLS."),
    "dump-log": Tool("barnabas.cli.dump_log:dump_log", "Show what log segments, indexes and snapshots hold."),
    "metadata-shell": Tool(
        "barnabas.cli.metadata_shell:metadata_shell", "Walk through the cluster's metadata as a tree."
    ),
    "broker-api-versions": Tool(
        "barnabas.cli.broker_api_versions:broker_api_versions", "Show which requests each broker understands."
    ),
    "cluster": Tool("barnabas.cli.cluster:cluster", "Show a cluster's id and nodes; forget a broker."),
    "metadata-quorum": Tool(
        "barnabas.cli.metadata_quorum:metadata_quorum", "Show who leads the metadata quorum, and the lag."
    ),
    "features": Tool("barnabas.cli.features:features", "Show and change the levels of features of a cluster."),
    "topics": Tool("barnabas.cli.topics:topics", "Create, show, change and delete topics."),
    "configs": Tool("barnabas.cli.configs:configs", "Show and change settings of topics, brokers, users …"),
    "consumer-groups": Tool(
        "barnabas.cli.consumer_groups:consumer_groups",
        "Show groups and how far they are, reset, delete.",
    ),
    "delegation-tokens": Tool(
        "barnabas.cli.delegation_tokens:delegation_tokens", "Ask for tokens that log in, renew and end them."
    ),
    "get-offsets": Tool("barnabas.cli.get_offsets:get_offsets", "Show the first or last offsets of partitions."),
    "delete-records": Tool("barnabas.cli.delete_records:delete_records", "Delete records before given offsets."),
    "leader-election": Tool("barnabas.cli.leader_election:leader_election", "Let partitions elect leaders."),
    "transactions": Tool(
        "barnabas.cli.transactions:transactions", "Show transactions and producers; end those that hang."
    ),
    "top": Tool("barnabas.cli.top.command:top", "Watch a cluster: throughput, lag, what is slow and why."),
    "why": Tool("barnabas.cli.why:why", "Say why a partition is not led, written or read."),
    "acls": Tool("barnabas.cli.acls:acls", "Add, remove and show who may do what; explain why."),
    "log-dirs": Tool("barnabas.cli.log_dirs:log_dirs", "Show what lies on the disks of brokers."),
    "console-producer": Tool("barnabas.cli.console_producer:console_producer", "Send lines of text as records."),
    "console-consumer": Tool("barnabas.cli.console_consumer:console_consumer", "Show the records of topics."),
    "producer-perf-test": Tool("barnabas.cli.producer_perf_test:producer_perf_test", "Measure how fast we send."),
    "consumer-perf-test": Tool("barnabas.cli.consumer_perf_test:consumer_perf_test", "Measure how fast we read."),
    "verifiable-producer": Tool(
        "barnabas.cli.verifiable_producer:verifiable_producer", "Send numbers, and tell of each as JSON."
    ),
    "verifiable-consumer": Tool(
        "barnabas.cli.verifiable_consumer:verifiable_consumer", "Read in a group, and tell of all events as JSON."
    ),
    "sim": Tool("barnabas.cli.sim:sim", "Run quorums in a simulated world, with faults."),
    "pipeline": Tool("barnabas.cli.pipeline:pipeline", "Write, check and run pipelines on Spark."),
}


class _Tools(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(TOOLS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        tool = TOOLS.get(cmd_name)
        if tool is None:
            return None
        module, _, name = tool.place.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        near = [] if args[0] in TOOLS else _tools_like(args[0])
        if near:  # click's own suggestions know only commands that are loaded
            raise click.UsageError(f"No such command {args[0]!r}. Did you mean {' or '.join(map(repr, near))}?", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            return _unheard()  # before click, which would say 1

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Tools"):
            formatter.write_dl([(name, tool.help) for name, tool in TOOLS.items()])


def _tools_like(name: str) -> list[str]:
    """Tools whose names are near to one that there is not; Kafka's names for them count as well."""
    from difflib import get_close_matches

    ours = name.removesuffix(".sh").removeprefix("kafka-")
    return [ours] if ours in TOOLS else get_close_matches(ours, TOOLS, n=2)


def tell_version(ctx: click.Context, _: click.Parameter, is_asked: bool) -> None:
    """The callback of a `--version` option."""
    if is_asked:
        from barnabas._version import package_version

        click.echo(f"barnabas {package_version()}")  # noqa: TID251
        ctx.exit()


@click.group(cls=_Tools, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=tell_version,
    help="Show the version and exit.",
)
def tools() -> None:
    """Apache Kafka's system, whole, in Python.

    \b
    Examples:
      barnabas up
      barnabas topics --bootstrap-server 127.0.0.1:9092 --create --topic clicks --partitions 6
      barnabas dump-log --cluster-metadata-decoder --files barnabas-data/__cluster_metadata-0/00000000000000000000.log
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a tool; the exit code. Whatever goes wrong is told in one place, here."""
    outcome = None
    try:
        outcome = tools.main(
            None if arguments is None else list(arguments), prog_name="barnabas", standalone_mode=False
        )
        if sys.stdout is not None:  # as with `>&-`
            sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as asked:  # a bare `barnabas`, or `barnabas storage`
        click.echo(asked.ctx.get_help() if asked.ctx is not None else "")  # noqa: TID251
    except click.UsageError as problem:
        tell(usage_text(problem))
        return WRONGLY_CALLED
    except click.ClickException as problem:
        tell(problem.format_message())
        return FAILED
    except BarnabasError as problem:
        tell(str(problem))
        return FAILED
    except BrokenPipeError:
        return _unheard()
    except OSError as problem:
        tell(": ".join(str(part) for part in (problem.filename, problem.strerror or problem) if part))
        return FAILED
    except (KeyboardInterrupt, click.Abort):
        return _INTERRUPTED
    return outcome if isinstance(outcome, int) else 0


def _unheard() -> int:
    from barnabas.cli.output import discard_output

    discard_output()
    return _UNHEARD


def tell(problem: str, *, colour: str = "red") -> None:
    """Say on standard error what went wrong."""
    click.echo(f"{click.style('barnabas:', fg=colour, bold=True)} {escaped_lines(problem)}", err=True)  # noqa: TID251


def usage_text(problem: click.UsageError) -> str:
    """What is wrong with a call, and where to read how it is done right."""
    path = problem.ctx.command_path if problem.ctx is not None else "barnabas"
    return f"{problem.format_message().rstrip('.')} (see '{path} --help')"
