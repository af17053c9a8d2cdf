"""The definition files of a project: how they are run, so that Spark knows what they define.

Done as `spark-pipelines` does it, with three differences: modules of the project's folder can be imported, and are read
anew in each update; files are read in the order of their names; what goes wrong is told with its file and line.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
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
    """Run the definition files of a project, so that Spark knows what they define.

    Functions of its modules come with the plan, not as names by which to import them: other machines do not have the
    folder, and a worker that has imported a module for an update before knows only what was in it then.
    """
    from pyspark.pipelines.graph_element_registry import graph_element_registration_context

    graph = Graph()
    with _at_home(project.folder) as own_modules, _pickled_by_value() as pickle_by_value:
        registry = _registry(project, spark, graph_id, graph, lambda: pickle_by_value(own_modules()))
        with graph_element_registration_context(registry):
            _run_all(project, spark, graph_id, registry, graph)
    if not graph.datasets:
        files = ", ".join(str(file.relative_to(project.folder)) for file in project.definitions)
        raise PipelineError(f"{project.spec.name}: nothing is defined in {files}")
    return graph


def _run_all(project: Project, spark: SparkSession, graph_id: str, registry: Any, graph: Graph) -> None:
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
        except (Exception, SystemExit) as failure:
            raise of_definition(failure, file, project.folder) from failure


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
def _at_home(folder: Path) -> Iterator[Callable[[], list[str]]]:
    """The project's folder is where relative paths start, and where its own modules are imported from, each time anew
    so that the next update sees what was changed. A Python that is installed in there is not the project's own.

    Hands over a function that tells which of these modules were imported so far."""
    before, known = os.getcwd(), set(sys.modules)
    environments = [path for path in (sys.prefix, sys.base_prefix) if Path(path).is_relative_to(folder)]

    def is_own(module: ModuleType) -> bool:
        file = getattr(module, "__file__", None)
        # A package without `__init__.py` has no file. It may be spread over several folders.
        places = [Path(place) for place in ([file] if file else getattr(module, "__path__", ()))]
        return bool(places) and all(
            place.is_relative_to(folder) and not any(place.is_relative_to(each) for each in environments)
            for place in places
        )

    def own_modules() -> list[str]:
        return [name for name in sorted(sys.modules.keys() - known) if is_own(sys.modules[name])]

    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        yield own_modules
    finally:
        sys.path.remove(str(folder))
        os.chdir(before)
        for name in own_modules():
            del sys.modules[name]


@contextmanager
def _pickled_by_value() -> Iterator[Callable[[list[str]], None]]:
    """Hands over a function that lets what is pickled from now on, within the block, hold whole functions of modules,
    rather than the names by which to import them."""
    pickle: Any = importlib.import_module("pyspark.cloudpickle")
    taken: dict[str, ModuleType] = {}

    def take(names: list[str]) -> None:
        for name in names:
            module = sys.modules[name]
            # One that calls itself otherwise is not found by its name on the other side either.
            if module.__name__ == name and name not in taken:
                pickle.register_pickle_by_value(module)
                taken[name] = module

    try:
        yield take
    finally:
        for module in taken.values():
            pickle.unregister_pickle_by_value(module)


def _registry(
    project: Project, spark: SparkSession, graph_id: str, graph: Graph, before_plan: Callable[[], None]
) -> Any:
    """Spark's registry, which also writes down what passes through it."""
    from pyspark.pipelines.output import MaterializedView, Sink, TemporaryView
    from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry

    def place(element: Any) -> str:
        return _place(element.source_code_location, project.folder)

    class Recording(SparkConnectGraphElementRegistry):
        def register_output(self, output: Any) -> None:
            if isinstance(output, Sink):
                output = replace(output, options=_sink_options(output.format, output.options, project.delivery))
            super().register_output(output)
            kinds = {MaterializedView: VIEW, Sink: SINK, TemporaryView: TEMPORARY}
            kind = kinds.get(type(output), TABLE)
            form = getattr(output, "format", None)
            is_once = kind == SINK and _is_ours(form) and _delivery(output.options) == "exactly-once"
            control = _control(output.options) if is_once else None
            graph.datasets[output.name] = Dataset(output.name, kind, place(output), form, is_once, control)

        def register_flow(self, flow: Any) -> None:
            made: list[Any] = []

            def remembered() -> Any:
                made.append(flow.func())
                before_plan()
                return made[-1]

            try:
                super().register_flow(type(flow)(**{**vars(flow), "func": remembered}))
            except PipelineError:
                raise
            except (Exception, SystemExit) as failure:
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


def _sink_options(form: str, options: Mapping[str, str], delivery: str | None) -> Mapping[str, str]:
    """Those of a sink, with the delivery of the project where it is ours and has none."""
    if delivery is None or not _is_ours(form) or _delivery(options) is not None:
        return options
    return {**options, "delivery": delivery}


def _is_ours(form: str | None) -> bool:
    return form is not None and form.lower() == "barnabas"


def _delivery(options: Mapping[str, str]) -> str | None:
    return next((value.lower() for name, value in options.items() if name.lower() == "delivery"), None)


def _control(options: Mapping[str, str]) -> tuple[Mapping[str, str], str] | None:
    """The cluster of a sink that is exactly once, and its control topic; None if its options are wrong, of which it
    will tell itself."""
    from barnabas.spark.core.errors import OptionError
    from barnabas.spark.core.options import SinkOptions

    try:
        parsed = SinkOptions.parse(options)
    except OptionError:
        return None
    return None if parsed.exactly_once is None else (parsed.client, parsed.exactly_once.control_topic)


def _place(location: Any, folder: Path) -> str:
    path = Path(location.filename)
    shown = path.relative_to(folder) if path.is_relative_to(folder) else path
    return f"{shown}:{location.line_number}" if location.line_number else str(shown)
