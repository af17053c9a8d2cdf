"""Pipelines on Spark Declarative Pipelines: projects of SQL and Python files, with topics as sources and sinks.

    from barnabas.spark.pipelines import load_project, run_project

    summary = run_project(load_project("clickstream"), reporter=Silent())

In the definition files of a project:

    from barnabas.spark.pipelines import quality

Definition files import this package, and so do workers: nothing is loaded before it is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from barnabas.spark.pipelines.failures import PipelineError as PipelineError
    from barnabas.spark.pipelines.project import Project as Project
    from barnabas.spark.pipelines.project import ProjectError as ProjectError
    from barnabas.spark.pipelines.project import load_project as load_project
    from barnabas.spark.pipelines.reporting import FlowState as FlowState
    from barnabas.spark.pipelines.reporting import Reporter as Reporter
    from barnabas.spark.pipelines.reporting import Silent as Silent
    from barnabas.spark.pipelines.reporting import Summary as Summary
    from barnabas.spark.pipelines.running import run_project as run_project

_PLACES: Final = {
    "FlowState": "reporting",
    "PipelineError": "failures",
    "Project": "project",
    "ProjectError": "project",
    "Reporter": "reporting",
    "Silent": "reporting",
    "Summary": "reporting",
    "load_project": "project",
    "run_project": "running",
}

__all__ = [
    "FlowState",
    "PipelineError",
    "Project",
    "ProjectError",
    "Reporter",
    "Silent",
    "Summary",
    "load_project",
    "run_project",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'barnabas.spark.pipelines' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"barnabas.spark.pipelines.{_PLACES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])
