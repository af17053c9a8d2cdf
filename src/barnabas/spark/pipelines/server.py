"""The Spark that a pipeline runs on: a JVM with a Spark Connect server in it, started for one run and ended with it.

Spark Declarative Pipelines speak Spark Connect only. PySpark can start such a server by itself, but then on a fixed
port, with its log on our terminal, and not to be stopped before this process ends; so it is done here, by PySpark's own
means. The server listens on loopback, and lets in only who knows the token of this process.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from barnabas.spark.environment import check_java, installed_pyspark, prepare
from barnabas.spark.pipelines import processes
from barnabas.spark.pipelines.failures import PipelineError, cause
from barnabas.spark.pipelines.project import INSTALL, Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NEEDED: Final = {"pyspark": "pyspark", "grpc": "grpcio", "pandas": "pandas", "pyarrow": "pyarrow", "yaml": "pyyaml"}
_ENDING_S: Final = 20.0
#: For what the JVM has started and left behind.
_LEFT_BEHIND_S: Final = 1.0
_LOOK_S: Final = 0.1
#: What is not to be asked of a proxy. gRPC reads the second only where the first is not set.
_NO_PROXY: Final = ("no_grpc_proxy", "no_proxy")
_PLUGIN: Final = "org.apache.spark.sql.connect.SparkConnectPlugin"


def check_installed() -> None:
    """All that a run needs, before seconds are spent on starting anything."""
    missing = [name for module, name in _NEEDED.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise PipelineError(f"pipelines need {', '.join(missing)}, not installed here: {INSTALL}")
    if importlib.util.find_spec("pyspark.pipelines") is None:
        from pyspark import __version__ as version

        raise PipelineError(f"pipelines need PySpark 4.1 or newer, and {version} is installed: {INSTALL}")
    check_java()


def server_settings(project: Project, master: str, given: Mapping[str, str]) -> dict[str, str]:
    """Settings of the JVM: ours where nobody has an opinion, those of the project over them, `given` over all."""
    is_local = master.startswith("local")
    ours = {
        "spark.app.name": project.name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": project.tables,
        # Tables must be known in the next run as well. The catalog in memory forgets them, and then refuses to create
        # them where their files are.
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": (
            f"jdbc:derby:;databaseName={catalog_folder(project)};create=true"
        ),
        # Hive makes a folder for each session where it would keep jars, and leaves it there.
        "spark.hadoop.hive.downloaded.resources.dir": str(_scratch(project) / "resources"),
        # Else derby.log appears wherever we were started. `extraJavaOptions` are left to others.
        "spark.driver.defaultJavaOptions": "-Dderby.stream.error.file=/dev/null",
    }
    if is_local:
        cores = os.cpu_count() or 2
        # 200, as Spark would have it, means 200 files and state stores for one machine.
        ours["spark.sql.shuffle.partitions"] = str(cores)
        # Each flow starts a Python, which must be up within ten seconds; of that limit Spark has no setting. Sixteen at
        # once, as Spark would have it, do not make it on a small machine.
        ours["spark.sql.pipelines.execution.maxConcurrentFlows"] = str(2 * cores)
    fixed = {
        "spark.master": master,
        "spark.plugins": _PLUGIN,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.sql.artifact.isolation.enabled": "true",
        "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
    }
    wanted = {**ours, **project.configuration, **given}
    if wanted.get("spark.plugins"):
        fixed["spark.plugins"] = f"{wanted['spark.plugins']},{_PLUGIN}"
    return {**wanted, **fixed}


def catalog_folder(project: Project) -> Path:
    """Where it is written down which tables there are, and where."""
    return project.working_folder / "catalog"


def _scratch(project: Project) -> Path:
    """What is of no use after the run."""
    return project.working_folder / "tmp"


class StartStoppedError(Exception):
    """Somebody did not want to wait for the start of Spark."""


class ConnectServer:
    """A running server. Made by `started`. One that did not come up has no context; it still has to be ended."""

    def __init__(self, context: Any, process: subprocess.Popen[bytes] | None, url: str) -> None:
        self._context = context
        self._process = process
        self._url = url

    def open_session(self, settings: Mapping[str, str]) -> SparkSession:
        """A new session. `settings` may hold anything: only what can be changed in a session is given to it."""
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession as ConnectSession

        builder: Any = ConnectSession.builder.remote(self._url)
        for name, value in self.changeable(settings).items():
            builder = builder.config(name, value)
        session = builder.config("spark.sql.connect.serverStacktrace.enabled", "false").create()
        # A server on this machine that does not answer has ended: trying for ten minutes, as is usual, helps nobody.
        session.client.set_retry_policies([DefaultPolicy(max_retries=5, max_backoff=1000)])
        return cast("SparkSession", session)

    @property
    def has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def changeable(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Those that a session may set. The others were given to the JVM when it started."""
        # Those that Spark lists are not all: it keeps some to itself.
        is_static = self._context._jvm.org.apache.spark.sql.internal.SQLConf.isStaticConfigKey
        return {name: value for name, value in settings.items() if not _is_of_the_core(name) and not is_static(name)}

    def end(self) -> None:
        """Stop Spark, its JVM and what that has started; by force if it does not want to."""
        # Afterwards nobody knows whose they were.
        started = [] if self._process is None else processes.below(self._process.pid)
        try:
            self._end_spark()
        finally:
            processes.end(started, _LEFT_BEHIND_S)

    def kill(self) -> None:
        """End the JVM at once: for one that answers no longer. `end` is still to be called."""
        if self._process is not None:
            started = processes.below(self._process.pid)
            self._process.kill()
            processes.end(started, _LEFT_BEHIND_S)

    def _end_spark(self) -> None:
        with contextlib.suppress(Exception):
            self._context.stop()
        with contextlib.suppress(Exception):
            self._context._gateway.shutdown()
        _forget_context()
        if self._process is None:
            return
        if self._process.stdin is not None:
            # What the JVM waits for: it ends when nobody can ask it for anything any more.
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


#: Groups of settings that belong to a running Spark, not to a session.
_CORE: Final = (
    "app", "connect", "driver", "executor", "hadoop", "jars", "log", "master", "plugins", "pyspark", "submit", "ui",
)  # fmt: skip


def _is_of_the_core(name: str) -> bool:
    return name.startswith("spark.") and name.split(".")[1] in _CORE


@contextmanager
def started(
    project: Project,
    master: str,
    given: Mapping[str, str],
    *,
    log: Path | None,
    stop: threading.Event,
) -> Iterator[ConnectServer]:
    """A server for as long as the block lasts. Its log goes to a file; to our standard error without one.

    Setting `stop` before it is up ends it, with `StartStoppedError`.
    """
    from pyspark import SparkConf, SparkContext

    if SparkContext._active_spark_context is not None:
        raise PipelineError("a Spark session runs in this process already: stop it, pipelines start their own")
    with _environment(project, master), contextlib.ExitStack() as stack:
        # Errors of a flow are told by us, once; the log keeps what Spark says, in --verbose the terminal does.
        conf = SparkConf().setAll(list(server_settings(project, master, given).items()))
        output: Any = sys.stderr if log is None else stack.enter_context(log.open("wb"))
        stack.callback(shutil.rmtree, _scratch(project), ignore_errors=True)
        server = _launched(conf, output, log, stop)
        try:
            yield server
        finally:
            server.end()


def _launched(conf: Any, output: Any, log: Path | None, stop: threading.Event) -> ConnectServer:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    where = f" (see {log})" if log is not None else ""
    try:
        gateway = _gateway(conf, output, stop)
    except StartStoppedError:
        raise
    except Exception as failure:
        why = _last_words(log) or str(failure)
        raise PipelineError(f"Spark does not start{where}: {cause(why)}") from failure
    process: subprocess.Popen[bytes] | None = gateway.proc
    context: Any = None
    try:
        with _killed_if(stop, process), _signals_kept():
            context = SparkContext(conf=conf, gateway=gateway)
        SparkSession(context)
        service = getattr(context._jvm.org.apache.spark.sql.connect.service, "SparkConnectService$")
        port = getattr(service, "MODULE$").localPort()
    except BaseException as failure:
        unfinished = ConnectServer(context, process, "")
        if not isinstance(failure, Exception):
            # Whoever breaks in does not want to wait.
            unfinished.kill()
        unfinished.end()
        if not isinstance(failure, Exception):
            raise
        if stop.is_set():
            raise StartStoppedError from failure
        raise PipelineError(f"Spark does not start{where}: {cause(_java_text(failure))}") from failure
    url = f"sc://localhost:{port}"
    os.environ.update({"SPARK_REMOTE": url, "SPARK_CONNECT_MODE_ENABLED": "1"})
    return ConnectServer(context, process, url)


def _gateway(conf: Any, output: Any, stop: threading.Event) -> Any:
    """A JVM that can be asked. It may take minutes to come up, for it loads packages before; waiting for it cannot be
    broken off, so somebody else waits."""
    import pyspark.java_gateway as pyspark_gateway

    launch: Any = pyspark_gateway.launch_gateway
    done: list[Any] = []
    failed: list[BaseException] = []

    def body() -> None:
        try:
            done.append(launch(conf, popen_kwargs={"stdout": output, "stderr": output}))
        except BaseException as failure:
            failed.append(failure)

    with _noted_processes(pyspark_gateway) as started:
        thread = threading.Thread(target=body, name="pipeline-launch", daemon=True)
        thread.start()
        try:
            while thread.is_alive() and not stop.is_set():
                thread.join(_LOOK_S)
            if stop.is_set():
                raise StartStoppedError
            if failed:
                raise failed[0]
        except BaseException:
            _break_off(thread, started)
            raise
    return done[0]


@contextmanager
def _noted_processes(module: Any) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Those that a module of PySpark starts within the block. By itself it tells of one only when that is up."""
    started: list[subprocess.Popen[bytes]] = []
    usual = module.Popen

    def noted(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        process: subprocess.Popen[bytes] = usual(*arguments, **options)
        started.append(process)
        return process

    module.Popen = noted
    try:
        yield started
    finally:
        module.Popen = usual


def _break_off(thread: threading.Thread, started: Sequence[subprocess.Popen[bytes]]) -> None:
    """End what the thread waits for, which may be just about to be started."""
    give_up_at_s = time.monotonic() + _ENDING_S
    while True:
        for process in started:
            if process.poll() is None:
                ConnectServer(None, process, "").kill()
            # Waits for it, and closes the pipe to it.
            process.communicate()
        if not thread.is_alive() or time.monotonic() > give_up_at_s:
            return
        thread.join(_LOOK_S)


@contextmanager
def _killed_if(stop: threading.Event, process: subprocess.Popen[bytes] | None) -> Iterator[None]:
    """A context that is being made cannot be broken off; but it fails at once without its JVM."""
    is_made = threading.Event()

    def watch() -> None:
        while not is_made.wait(_LOOK_S):
            if stop.is_set() and process is not None:
                process.kill()
                return

    watcher = threading.Thread(target=watch, name="pipeline-start", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_made.set()
        watcher.join()


@contextmanager
def _signals_kept() -> Iterator[None]:
    """A context wants Ctrl-C for itself; what it means here is for whoever started the run to say."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _java_text(failure: Exception) -> str:
    """What Java said, where the failure is one of its own."""
    java: Any = getattr(failure, "java_exception", None)
    return str(failure) if java is None else str(java.toString())


def _last_words(log: Path | None) -> str | None:
    """Why a JVM ended before anybody could ask it, as when a package is not to be had."""
    if log is None:
        return None
    text = log.read_text(encoding="utf-8", errors="replace")
    found = re.search(r'^Exception in thread "main" (.+)', text, re.M)
    return None if found is None else found[1]


def _forget_context() -> None:
    """PySpark keeps the way to its JVM for the next context; ours has ended. A context whose JVM does not answer cannot
    be stopped, and would be in the way of the next one."""
    from pyspark import SparkContext

    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None


@contextmanager
def _environment(project: Project, master: str) -> Iterator[None]:
    """What Spark and its workers take from the environment; put back as it was at the end."""
    before = dict(os.environ)
    with contextlib.ExitStack() as stack:
        if master.startswith("local"):
            prepare()
            if not master.startswith("local-cluster"):
                stack.enter_context(installed_pyspark(project.working_folder / "spark"))
        else:
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        _set_variables(project, before)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", module=r"pyspark\..*")
                yield
        finally:
            for name in set(os.environ) - set(before):
                del os.environ[name]
            os.environ.update(before)


def _set_variables(project: Project, before: Mapping[str, str]) -> None:
    # gRPC reports on standard error what is none of our users' business.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = secrets.token_hex(16)
    # gRPC would ask a proxy even for this machine.
    first, second = _NO_PROXY
    os.environ[first] = ",".join(filter(None, [before.get(first, before.get(second)), "localhost"]))
    # Functions of the project that run on workers are looked for where the definitions find them.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(project.folder), before.get("PYTHONPATH")]))
    for name in ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE"):
        os.environ.pop(name, None)
