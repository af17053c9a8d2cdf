"""`barnabas features`: the levels of features that a cluster has agreed on. Kafka's `kafka-features`, with its output.

Levels are those of Kafka 4.3, also those that Barnabas has not built: `version-mapping` and `feature-dependencies` tell
of Kafka's releases, and need no cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import click

from barnabas.base.errors import BarnabasError, BrokerError
from barnabas.cli.argument_groups import Action, Actions, cluster_of, connection_before_action
from barnabas.cli.output import print_json, say, shown
from barnabas.metadata.features import DEPENDENCIES, ELR_VERSION, FEATURES, KRAFT_VERSION, METADATA_VERSION

if TYPE_CHECKING:
    from barnabas.client.admin import Admin
    from barnabas.client.admin.cluster import FeatureUpgrade

#: The first metadata.version at which a new cluster gets each level.
_DEFAULTS: Final[Mapping[str, tuple[tuple[int, int], ...]]] = {
    KRAFT_VERSION: ((21, 1),),
    "transaction.version": ((24, 2),),
    "group.version": ((22, 1),),
    ELR_VERSION: ((26, 1),),
    "share.version": ((28, 1),),
    "streams.version": ((29, 1),),
}
_HIGHEST: Final[Mapping[str, int]] = {name: levels[-1][1] for name, levels in _DEFAULTS.items()}
_LATEST: Final = 30
_SHORTS: Final = range(-32768, 32768)


@click.group(cls=Actions)
@connection_before_action
@click.pass_context
def features(
    ctx: click.Context, bootstrap_server: str | None, bootstrap_controller: str | None, command_config: str | None
) -> None:
    """Show and change the levels of features that the cluster has agreed on.

    \b
    Examples:
      barnabas features --bootstrap-server 127.0.0.1:9092 describe
      barnabas features --bootstrap-server 127.0.0.1:9092 upgrade --feature kraft.version=1 --dry-run
      barnabas features version-mapping --release-version 4.0
    """
    ctx.obj = (bootstrap_server, bootstrap_controller, command_config)


_FEATURE: Final = click.option("--feature", "given", multiple=True, metavar="NAME=LEVEL", help="A feature; or several.")
_METADATA: Final = click.option("--metadata", metavar="RELEASE", help="Deprecated: metadata.version alone, by release.")
_RELEASE: Final = click.option(
    "--release-version", metavar="RELEASE", help="All features as in a release, say 4.0-IV3."
)
_DRY_RUN: Final = click.option("--dry-run", is_flag=True, help="Only say whether it could be done.")
_UNSAFE: Final = click.option("--unsafe", is_flag=True, help="Also if that may destroy metadata.")


@features.command(cls=Action)
@click.option("--node-id", type=int, help="The node to ask; any, if it is not given.")
@click.option("--json", "as_json", is_flag=True, help="JSON for programs.")
@click.pass_context
def describe(ctx: click.Context, node_id: int | None, as_json: bool) -> int:
    """Show the levels."""
    if node_id is not None and node_id < 0:
        raise BarnabasError(f"Invalid node id {node_id}: must be non-negative.")
    found = cluster_of(*ctx.obj).run(lambda admin: admin.describe_features(node_id=node_id))
    rows = {}
    for name, supported in sorted(found.supported.items()):
        level = found.finalized[name].max_level if name in found.finalized else 0
        rows[name] = [_level_text(name, each) for each in (supported.min_level, supported.max_level, level)]
    epoch = "-" if found.finalized_epoch is None else str(found.finalized_epoch)
    if as_json:
        keys = ("supportedMinVersion", "supportedMaxVersion", "finalizedVersionLevel")
        told = [{"feature": name, **dict(zip(keys, texts, strict=True))} for name, texts in rows.items()]
        print_json({"epoch": found.finalized_epoch, "features": told})
        return 0
    for name, (low, high, level_text) in rows.items():
        say(
            f"Feature: {shown(name):<40}  SupportedMinVersion: {low:<15}  SupportedMaxVersion: {high:<15}  "
            f"FinalizedVersionLevel: {level_text:<15}  Epoch: {epoch}"
        )
    return 0


@features.command(cls=Action)
@_METADATA
@_RELEASE
@_FEATURE
@_DRY_RUN
@click.pass_context
def upgrade(
    ctx: click.Context, metadata: str | None, release_version: str | None, given: tuple[str, ...], dry_run: bool
) -> int:
    """Raise levels."""
    from barnabas.client.admin.cluster import FeatureUpgrade

    levels = _levels(metadata, release_version, given, is_upgrade=True)
    return _change(ctx, "upgrade", levels, FeatureUpgrade.UPGRADE, dry_run)


@features.command(cls=Action)
@_METADATA
@_RELEASE
@_FEATURE
@_UNSAFE
@_DRY_RUN
@click.pass_context
def downgrade(
    ctx: click.Context,
    metadata: str | None,
    release_version: str | None,
    given: tuple[str, ...],
    unsafe: bool,
    dry_run: bool,
) -> int:
    """Lower levels."""
    levels = _levels(metadata, release_version, given, is_upgrade=False)
    return _change(ctx, "downgrade", levels, _downgrade(unsafe), dry_run)


@features.command(cls=Action)
@click.option("--feature", "given", multiple=True, metavar="NAME", help="A feature; or several.")
@_UNSAFE
@_DRY_RUN
@click.pass_context
def disable(ctx: click.Context, given: tuple[str, ...], unsafe: bool, dry_run: bool) -> int:
    """Lower levels to 0."""
    levels: dict[str, int] = {}
    for name in given:
        _put(levels, name, 0)
    return _change(ctx, "disable", levels, _downgrade(unsafe), dry_run)


@features.command("version-mapping", cls=Action)
@click.option("--release-version", metavar="RELEASE", help="The release; the latest, if it is not given.")
def version_mapping(release_version: str | None) -> int:
    """Show which levels a release brings."""
    release = release_version or _releases()[_LATEST]
    level = _metadata_version(release)
    say(f"{METADATA_VERSION}={level} ({release})")
    for name in FEATURES:
        say(f"{name}={_default(name, level)}")
    return 0


@features.command("feature-dependencies", cls=Action)
@click.option("--feature", "given", multiple=True, required=True, metavar="NAME=LEVEL", help="A feature; or several.")
def feature_dependencies(given: tuple[str, ...]) -> int:
    """Show which levels of other features a level needs."""
    for name, level in map(_parse, given):
        _show_dependencies(name, level)
    return 0


def _show_dependencies(name: str, level: int) -> None:
    releases = _releases()
    if name == METADATA_VERSION:
        if level not in releases:
            raise BarnabasError(f"Unknown metadata.version {level}")
        say(f"{name}={level} ({releases[level]}) has no dependencies.")
        return
    if name not in FEATURES:
        raise BarnabasError(f"Unknown feature: {name}")
    if not 0 <= level <= _HIGHEST[name]:
        raise BarnabasError(f"No feature:{name} with feature level {level}")
    needed = DEPENDENCIES.get((name, level))
    if needed is None:
        say(f"{name}={level} has no dependencies.")
        return
    say(f"{name}={level} requires:")
    for other, least in needed.items():
        say(f"    {other}={least}" + (f" ({releases[least]})" if other == METADATA_VERSION else ""))


# What is asked for


def _releases() -> Mapping[int, str]:
    from barnabas.broker.quorum.formatting import RELEASES

    return RELEASES


def _level_text(name: str, level: int) -> str:
    if name != METADATA_VERSION:
        return str(level)
    return _releases().get(level, f"UNKNOWN {level}")


def _metadata_version(release: str) -> int:
    """The level of a release: of `4.0-IV3`, or of the last of `4.0`."""
    releases = _releases()
    line = ".".join(release.split(".")[:2])
    found = [level for level, name in releases.items() if name == release]
    found = found or [
        level for level, name in releases.items() if name.partition("-")[0] == line and "-" not in release
    ]
    if not found:
        raise BarnabasError(
            f"Unknown metadata.version '{release}'. Supported metadata.version are: {', '.join(releases.values())}"
        )
    return max(found)


def _default(name: str, metadata_version: int) -> int:
    return max((level for first, level in _DEFAULTS[name] if metadata_version >= first), default=0)


def _parse(text: str) -> tuple[str, int]:
    name, sign, level = (part.strip() for part in text.partition("="))
    if not sign:
        raise BarnabasError(f"Can't parse feature=level string {text}: equals sign not found.")
    try:
        number = int(level)
        if number not in _SHORTS:
            raise ValueError
    except ValueError:
        raise BarnabasError(f"Can't parse feature=level string {text}: unable to parse {level} as a short.") from None
    return name, number


def _put(levels: dict[str, int], name: str, level: int) -> None:
    if name in levels:
        raise BarnabasError(f"Feature {name} was specified more than once.")
    levels[name] = level


def _levels(metadata: str | None, release: str | None, given: Iterable[str], *, is_upgrade: bool) -> dict[str, int]:
    given = list(given)
    levels: dict[str, int] = {}
    if release is not None:
        if metadata is not None or given:
            raise BarnabasError("Can not specify `release-version` with other feature flags.")
        levels[METADATA_VERSION] = _metadata_version(release)
        for name in FEATURES:
            level = _default(name, levels[METADATA_VERSION])
            if level or not is_upgrade:
                levels[name] = level
        return levels
    if metadata is not None:
        say(" `metadata` flag is deprecated and may be removed in a future release.")
        levels[METADATA_VERSION] = _metadata_version(metadata)
    for name, level in map(_parse, given):
        _put(levels, name, level)
    return levels


def _downgrade(unsafe: bool) -> FeatureUpgrade:
    from barnabas.client.admin.cluster import FeatureUpgrade

    return FeatureUpgrade.UNSAFE_DOWNGRADE if unsafe else FeatureUpgrade.SAFE_DOWNGRADE


# Doing it


def _change(ctx: click.Context, action: str, levels: dict[str, int], kind: FeatureUpgrade, dry_run: bool) -> int:
    from barnabas.client.admin.cluster import FeatureUpdate

    if not levels:
        raise BarnabasError(f"You must specify at least one feature to {action}")
    updates = {name: FeatureUpdate(level, kind) for name, level in levels.items()}
    refusal = ""

    async def ask(admin: Admin) -> None:
        await admin.update_features(updates, validate_only=dry_run)

    try:
        cluster_of(*ctx.obj).run(ask)
    except BrokerError as refused:
        refusal = refused.message or refused.code.text
    for name, level in sorted(levels.items()):
        to = "" if action == "disable" else f" to {level}"
        if refusal:
            say(f"{'Can not' if dry_run else 'Could not'} {action} {shown(name)}{to}. {refusal}")
        else:
            say(f"{shown(name)} {'can be' if dry_run else 'was'} {action}d{to}.")
    if refusal:
        # All of them hold, or none.
        raise BarnabasError(f"{len(levels)} out of {len(levels)} operation(s) failed.")
    return 0
