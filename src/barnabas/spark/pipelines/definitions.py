"""The definition files of a project: how they are run, so that Spark knows what they define.

Done as `spark-pipelines` does it, with three differences: modules of the project's folder can be imported, and are read
anew in each update; files are read in the order of their names; what goes wrong is told with its file and line.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.spark.pipelines.failures import PipelineError, of_definition
from barnabas.spark.pipelines.graph import (
    SINK,
    TABLE,
    TEMPORARY,
    VIEW,
    Dataset,
    Flow,
    Graph,
    clusters_in,
    inputs_of,
    sql_graph,
)
from barnabas.spark.pipelines.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(project: Project, spark: SparkSession, graph_id: str) -> Graph:
    """Run the definition files of a project, so that Spark knows what they define."""
    from pyspark.pipelines.graph_element_registry import graph_element_registration_context

    graph = Graph()
    registry = _registry(project, spark, graph_id, graph)
    with _at_home(project.folder), graph_element_registration_context(registry):
        for file in project.definitions:
            try:
                if file.suffix == ".sql":
                    text = file.read_text(encoding="utf-8")
                    registry.register_sql(text, file.relative_to(project.folder))
                    sql_graph(text, str(file.relative_to(project.folder)), graph)
                else:
                    _run(file, spark, graph_id)
            except PipelineError:
                raise
            except Exception as failure:
                raise of_definition(failure, file, project.folder) from failure
    if not graph.datasets:
        files = ", ".join(str(file.relative_to(project.folder)) for file in project.definitions)
        raise PipelineError(f"{project.spec.name}: nothing is defined in {files}")
    return graph


def _run(file: Path, spark: SparkSession, graph_id: str) -> None:
    from pyspark.pipelines.add_pipeline_analysis_context import add_pipeline_analysis_context
    from pyspark.pipelines.block_session_mutations import block_session_mutations

    spec = importlib.util.spec_from_file_location(file.stem, str(file))
    if spec is None or spec.loader is None:
        raise PipelineError(f"{file} cannot be run as Python")
    module = importlib.util.module_from_spec(spec)
    module.__dict__["spark"] = spark
    with add_pipeline_analysis_context(spark, graph_id, None), block_session_mutations():
        spec.loader.exec_module(module)


@contextmanager
def _at_home(folder: Path) -> Iterator[None]:
    """The project's folder is where relative paths start, and where its own modules are imported from, each time anew
    so that the next update sees what was changed. A Python that is installed in there is not the project's own."""
    before, known = os.getcwd(), set(sys.modules)
    environments = [path for path in (sys.prefix, sys.base_prefix) if Path(path).is_relative_to(folder)]
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        os.chdir(before)
        for name in sys.modules.keys() - known:
            path = Path(getattr(sys.modules[name], "__file__", None) or "")
            if path.is_relative_to(folder) and not any(path.is_relative_to(each) for each in environments):
                del sys.modules[name]


def _registry(project: Project, spark: SparkSession, graph_id: str, graph: Graph) -> Any:
    """Spark's registry, which also writes down what passes through it."""
    from pyspark.pipelines.output import MaterializedView, Sink, TemporaryView
    from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry

    def place(element: Any) -> str:
        return _place(element.source_code_location, project.folder)

    class Recording(SparkConnectGraphElementRegistry):
        def register_output(self, output: Any) -> None:
            super().register_output(output)
            kinds = {MaterializedView: VIEW, Sink: SINK, TemporaryView: TEMPORARY}
            kind = kinds.get(type(output), TABLE)
            graph.datasets[output.name] = Dataset(output.name, kind, place(output), getattr(output, "format", None))

        def register_flow(self, flow: Any) -> None:
            made: list[Any] = []

            def remembered() -> Any:
                made.append(flow.func())
                return made[-1]

            try:
                super().register_flow(type(flow)(**{**vars(flow), "func": remembered}))
            except PipelineError:
                raise
            except Exception as failure:
                error = of_definition(failure, project.folder / place(flow), project.folder)
                raise PipelineError(f"flow {flow.name}: {error}", error.details) from failure
            inputs: tuple[str, ...] = ()
            clusters: tuple[Mapping[str, str], ...] = ()
            if made:
                plan = made[-1]._plan.plan(self._client)
                inputs, clusters = inputs_of(plan), clusters_in(plan)
            graph.flows[flow.name] = Flow(flow.name, flow.target, place(flow), inputs, clusters)

        def register_auto_cdc_flow(self, flow: Any) -> None:
            super().register_auto_cdc_flow(flow)
            graph.flows[flow.name] = Flow(flow.name, flow.target, place(flow), (flow.source,))

    return Recording(spark, graph_id)


def _place(location: Any, folder: Path) -> str:
    path = Path(location.filename)
    shown = path.relative_to(folder) if path.is_relative_to(folder) else path
    return f"{shown}:{location.line_number}" if location.line_number else str(shown)
