"""Code touches the world only through what it is handed: no sockets, clocks, threads or files of its own.

The cores are plain and synchronous. `net` and `broker` run on asyncio, whose loop the simulator replaces, and on
nothing else; so what is true of a node in a simulated world is true of one in the real world.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import barnabas

ROOT = Path(barnabas.__file__).parent

CORES = (
    *("base", "wire", "records", "storage", "raft", "metadata", "replication", "coordinator"),
    *("client/core", "spark/core", "testing"),
)
SHELLS = ("net", "broker", "client/producer", "client/consumer", "client/admin")

FORBIDDEN = {
    "asyncio",
    "concurrent",
    "datetime",
    "multiprocessing",
    "os",
    "random",
    "secrets",
    "selectors",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "uuid",
}

#: Where the world is met, and with what.
ALLOWED = {
    # The time of a line, as text.
    "base/log_formats.py": {"datetime"},
    "base/runtime.py": {"time"},
    "base/properties.py": {"os"},
    "base/system_runtime.py": {"asyncio", "concurrent", "os"},
    # Of the process: memory, files, processor time.
    "broker/metrics/process.py": {"os", "time"},
    "net/sockets.py": {"socket"},
    # The library's contexts are made of keys, which it takes from files alone.
    "net/tls/contexts.py": {"os", "ssl", "tempfile"},
    "net/tls/failures.py": {"ssl"},
    "net/tls/layer.py": {"ssl"},
    # What drives the machine, and Raft's own transport for those who use it without a broker.
    "raft/driver.py": {"asyncio"},
    "raft/node.py": {"asyncio"},
    "raft/socket_client.py": {"asyncio"},
    "raft/socket_parts.py": {"asyncio"},
    "raft/socket_server.py": {"asyncio"},
    "raft/socket_transport.py": {"asyncio"},
    # Clients for programs without asyncio wait in the program's own threads.
    "client/consumer/sync_consumer.py": {"threading"},
    "client/producer/sync_producer.py": {"threading", "time"},
    "storage/checkpoints.py": {"threading"},
    "storage/manager.py": {"asyncio"},
    "storage/real_files.py": {"os", "threading"},
    "testing/certificates.py": {"datetime"},
    # The tools for tests are not run by nodes; `sim` stands in for the world, and must not reach for the real one.
    "testing/embedded.py": {"asyncio", "os", "threading"},
    "testing/embedded_cluster.py": {"asyncio", "concurrent", "time"},
    "testing/embedded_node.py": {"asyncio", "concurrent", "socket", "threading"},
    "testing/node_loop.py": {"asyncio", "socket"},
    "testing/faults.py": {"asyncio", "threading"},
    "testing/memory_files.py": {"os", "threading"},
    "testing/oidc.py": {"threading", "time"},
    "testing/security.py": {"secrets", "ssl", "tempfile"},
    "testing/scripted_client.py": {"asyncio"},
    "testing/sim/cluster_clients.py": {"asyncio"},
    "testing/sim/cluster_run.py": {"asyncio"},
    "testing/sim/cluster_scenario.py": {"asyncio"},
    "testing/sim/faults.py": {"os"},
    "testing/sim/loop.py": {"asyncio", "socket", "threading"},
    "testing/sim/model_network.py": {"asyncio"},
    "testing/sim/nemesis.py": {"asyncio"},
    "testing/sim/network.py": {"asyncio"},
    "testing/sim/process.py": {"asyncio"},
    "testing/sim/quorum_clients.py": {"asyncio"},
    "testing/sim/quorum_flapping.py": {"asyncio"},
    "testing/sim/quorum_scenario.py": {"asyncio"},
    "testing/sim/raft_replica.py": {"asyncio"},
    "testing/sim/raft_scenario.py": {"asyncio"},
    "testing/sim/raft_voter_changes.py": {"asyncio"},
    "testing/sim/replicated_run.py": {"asyncio"},
    "testing/sim/runtime.py": {"asyncio"},
    "testing/sim/transaction_clients.py": {"asyncio"},
    "testing/sim/transaction_scenario.py": {"asyncio"},
    "testing/sim/transaction_stragglers.py": {"asyncio"},
    "testing/sim/transports.py": {"asyncio"},
    "testing/sim/world.py": {"asyncio"},
}

#: Ways of asyncio around what a node was handed, and where they are taken.
DETOURS = {"run", "new_event_loop", "run_in_executor", "to_thread", "Runner", "create_subprocess_exec"}
# An issuer of tokens, and the providers of tokens of programs, block; no simulated world has any.
DETOURS_ALLOWED = {"base/system_runtime.py", "net/runtime.py", "net/oidc.py", "net/sasl_client.py"}


def imports(path: Path) -> Iterator[str]:
    """The modules that a file imports by name. The type `Random` is fine: an instance must still be handed in."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and [alias.name for alias in node.names] != ["Random"]:
            yield node.module.partition(".")[0]


def calls(path: Path) -> Iterator[ast.expr]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return (node.func for node in nodes if isinstance(node, ast.Call))


def opens_files(path: Path) -> bool:
    return any(isinstance(called, ast.Name) and called.id == "open" for called in calls(path))


def detours(path: Path) -> list[str]:
    """Calls such as `asyncio.run(…)` and `loop.run_in_executor(…)`."""
    found = [called for called in calls(path) if isinstance(called, ast.Attribute) and called.attr in DETOURS]
    return [
        called.attr
        for called in found
        if called.attr != "run" or (isinstance(called.value, ast.Name) and called.value.id == "asyncio")
    ]


def files_of(*packages: str) -> list[Path]:
    return [path for package in packages for path in sorted((ROOT / package).rglob("*.py"))]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def reaching_out(paths: list[Path], forbidden: set[str]) -> dict[str, list[str]]:
    return {
        name_of(path): sorted(reached)
        for path in paths
        if (reached := set(imports(path)) & forbidden - ALLOWED.get(name_of(path), set()))
    }


def test_cores_import_nothing_that_reaches_out() -> None:
    assert len(files_of(*CORES)) > 150
    assert reaching_out(files_of(*CORES), FORBIDDEN) == {}


def test_shells_know_the_event_loop_and_nothing_else_of_the_world() -> None:
    assert len(files_of(*SHELLS)) > 30
    assert reaching_out(files_of(*SHELLS), FORBIDDEN - {"asyncio"}) == {}


def test_nothing_takes_a_way_around_the_loop_that_it_runs_on() -> None:
    found = {name_of(path): detours(path) for path in files_of(*CORES, *SHELLS) if detours(path)}
    assert set(found) - DETOURS_ALLOWED - {name for name in found if name.startswith("testing/")} == set()


def test_nobody_but_the_file_system_opens_files() -> None:
    assert [name_of(path) for path in files_of(*CORES, *SHELLS) if opens_files(path)] == []


def test_what_is_allowed_is_needed() -> None:
    """A permission that nobody uses any more would let somebody in unnoticed."""
    idle = {
        name: sorted(modules - set(imports(ROOT / name)))
        for name, modules in ALLOWED.items()
        if modules - set(imports(ROOT / name))
    }
    assert idle == {}
