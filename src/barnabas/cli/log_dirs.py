"""`barnabas log-dirs`: the disks of brokers, and what lies on them. Kafka's `kafka-log-dirs`, with its output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError
from barnabas.cli.admin_options import ClusterOptions, reason
from barnabas.cli.kafka_options import GivenOptions, KafkaTool, action, connection
from barnabas.cli.output import compact_json, is_terminal, print_json, print_table, say

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, LogDirDescription

#: By broker and path.
LogDirs = Mapping[int, Mapping[str, "LogDirDescription"]]


@click.command(cls=KafkaTool)
@connection()
@action("--describe", "Show the log directories.")
@click.option("--topic-list", metavar="NAME,…", help="Only what is there of these topics.")
@click.option("--broker-list", metavar="ID,…", help="Only these brokers.")
@click.pass_context
def log_dirs(
    ctx: click.Context,
    bootstrap_server: str | None,
    command_config: str | None,
    as_json: bool,
    topic_list: str | None,
    broker_list: str | None,
) -> None:
    """Show the log directories of brokers: which replicas lie there, how large they are, and how far behind.

    \b
    Example:
      barnabas log-dirs --bootstrap-server 127.0.0.1:9092 --describe --topic-list clicks
    """
    GivenOptions(ctx).need("--bootstrap-server", "--describe")
    topics = set(_parts(topic_list))
    brokers = _broker_ids(broker_list)
    is_quiet = as_json or is_terminal()
    found = ClusterOptions(bootstrap_server, command_config).run(lambda admin: _ask(admin, brokers, is_quiet))
    if is_terminal() and not as_json:
        print_table(("broker", "directory", "partition", "bytes", "behind by", "of"), _rows(found, topics))
    elif as_json:
        print_json(_document(found, topics))
    else:
        say(f"Received log directory information from brokers {','.join(map(str, found))}")
        say(compact_json(_document(found, topics)))


def _parts(text: str | None) -> list[str]:
    return [part for part in (text or "").split(",") if part]


def _broker_ids(text: str | None) -> list[int]:
    try:
        return list(dict.fromkeys(int(part) for part in _parts(text)))
    except ValueError:
        raise click.UsageError(f"--broker-list: {text!r} is no list of broker ids like '1,2'") from None


async def _ask(admin: Admin, wanted: list[int], is_quiet: bool) -> LogDirs:
    alive = [node.node_id for node in (await admin.describe_cluster()).nodes]
    missing = [each for each in wanted if each not in alive]
    if missing:
        unknown, known = (",".join(map(str, those)) for those in (missing, alive))
        raise BarnabasError(f"--broker-list: there are no brokers {unknown}; those that there are: {known}")
    if not is_quiet:
        say("Querying brokers for log directories information")
    return await admin.describe_log_dirs(wanted or alive)


def _document(found: LogDirs, topics: set[str]) -> dict[str, Any]:
    """In the order of Kafka's tool, which scripts read by position more often than they should."""
    brokers = [
        {"broker": broker, "logDirs": [_log_dir(each, topics) for each in directories.values()]}
        for broker, directories in found.items()
    ]
    return {"brokers": brokers, "version": 1}


def _log_dir(directory: LogDirDescription, topics: set[str]) -> dict[str, Any]:
    return {
        "partitions": [
            {
                "partition": str(key),
                "size": replica.size_bytes,
                "offsetLag": replica.offset_lag,
                "isFuture": replica.is_future,
            }
            for key, replica in directory.replicas.items()
            if not topics or key.topic in topics
        ],
        "error": None if directory.error is None else _java_name(directory.error.code),
        "logDir": directory.path,
    }


def _java_name(code: ErrorCode) -> str:
    """The class of Kafka's exception, which is what its tool writes."""
    words = code.name.removesuffix("_ERROR").split("_")
    return f"org.apache.kafka.common.errors.{''.join(word.capitalize() for word in words)}Exception"


def _rows(found: LogDirs, topics: set[str]) -> Iterable[tuple[object, ...]]:
    """For people: a directory without any of these replicas is shown, too, and why one is offline."""
    for broker, directories in found.items():
        for path, each in directories.items():
            if each.error is not None:
                yield (broker, path, f"offline: {reason(each.error)}", "", "", "")
                continue
            replicas = [one for one in sorted(each.replicas.items()) if not topics or one[0].topic in topics]
            size = "" if each.total_bytes is None else f"{each.usable_bytes} free of {each.total_bytes}"
            yield (broker, path, f"{len(replicas)} replicas", sum(one.size_bytes for _, one in replicas), "", size)
            for key, replica in replicas:
                what = "a copy that will take its place" if replica.is_future else ""
                yield (broker, path, key, replica.size_bytes, replica.offset_lag, what)
