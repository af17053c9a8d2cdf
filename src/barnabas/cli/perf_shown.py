"""What the tools that measure show alike: metrics, and progress for people at a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from barnabas.cli.output import has_colours, is_terminal, say

MIB = 1024 * 1024


def print_metrics(metrics: Mapping[str, Mapping[str, float]], client_id: str) -> None:
    """All metrics of a client, sorted by name, in Kafka's form: `group:name:{tags} : value`."""
    rows = sorted(
        (f"{group}:{_with_tags(name, client_id)}", value)
        for group, values in metrics.items()
        for name, value in values.items()
    )
    width = max(len(name) for name, _ in rows)
    say(f"\n{'Metric Name':<{width}}   Value")
    for name, value in rows:
        say(f"{name:<{width}} : {value:.3f}")


def _with_tags(name: str, client_id: str) -> str:
    bare, _, tags = name.removesuffix("}").partition("{")
    return f"{bare}:{{{', '.join([f'client-id={client_id}', *filter(None, tags.split(','))])}}}"


@contextmanager
def live_progress(what: str, total: int, done: Callable[[], int]) -> Iterator[None]:
    """A bar with the rate at a terminal. It asks for `done` by itself, so that what is measured pays nothing for it."""
    if not has_colours(sys.stderr):
        yield
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
        from rich.text import Text
    except ImportError:
        yield
        return

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            task.completed = min(done(), total)
            elapsed = task.elapsed or 0.0
            return Text(f"{task.completed / elapsed:,.0f}/s" if elapsed else "")

    columns = (TextColumn("{task.description}"), Rate(), BarColumn(), TimeRemainingColumn())
    # Lines on standard output go above the bar if both are the same terminal, and where they belong if not.
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=is_terminal()) as shown:
        shown.add_task(what, total=total)
        yield
