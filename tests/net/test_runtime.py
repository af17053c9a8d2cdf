"""The real runtime."""

from __future__ import annotations

import asyncio
import platform
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from barnabas.base.runtime import Runtime
from barnabas.base.system_runtime import SystemRuntime
from barnabas.net.runtime import new_event_loop, run
from barnabas.net.sockets import sends_untouched


def test_work_is_offloaded_to_a_bounded_pool() -> None:
    runtime = SystemRuntime(max_threads=2)
    handed: Runtime = runtime
    here = threading.get_ident()
    seen: list[object] = []

    async def main() -> None:
        threads = await asyncio.gather(*[handed.offload(threading.get_ident) for _ in range(20)])
        seen.extend(threads)
        with pytest.raises(ZeroDivisionError):
            await handed.offload(lambda: 1 // 0)

    run(main())
    runtime.close()
    assert here not in seen
    assert 1 <= len(set(seen)) <= 2


@pytest.mark.parametrize("new_loop", [new_event_loop, asyncio.new_event_loop])
def test_only_uvloop_is_known_to_hand_over_what_it_sends_as_it_is(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main() -> bool:
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, "127.0.0.1", port)
        transport.close()
        server.close()
        return sends_untouched(transport)

    loop = new_loop()
    assert loop.run_until_complete(main()) == type(loop).__module__.startswith("uvloop")
    loop.close()


def test_two_runtimes_draw_different_numbers() -> None:
    first, second = SystemRuntime(), SystemRuntime()
    assert first.randomness.random() != second.randomness.random()
    assert abs(first.clock.now_ms() - second.clock.now_ms()) < 60_000
    first.close()
    second.close()


def test_a_failure_comes_out_of_run() -> None:
    async def main() -> None:
        raise KeyError("gone")

    with pytest.raises(KeyError, match="gone"):
        run(main())


def test_uvloop_is_used_where_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("uvloop", reason="uvloop is not installed")
    loop = new_event_loop()
    assert type(loop).__module__.startswith("uvloop")
    loop.close()
    monkeypatch.setitem(sys.modules, "uvloop", None)
    loop = new_event_loop()
    assert type(loop).__module__.startswith("asyncio")
    loop.close()


_FAULTS_OF_LARGE_BUFFERS = """
import resource
from barnabas.net.runtime import reuse_large_buffers

assert reuse_large_buffers()
several = [bytearray(3 << 20) for _ in range(4)]
del several
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    several = [bytearray(3 << 20) for _ in range(4)]
    del several
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators have no such setting")
def test_memory_of_large_buffers_is_used_again() -> None:
    told = subprocess.run(
        [sys.executable, "-c", _FAULTS_OF_LARGE_BUFFERS], capture_output=True, text=True, check=True, timeout=60
    )
    pages = 50 * 4 * (3 << 20) // 4096
    assert int(told.stdout) < pages // 10
