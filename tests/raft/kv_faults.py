"""`examples.raft_kv` as three processes that are killed, stopped and cut off while clients set and get.

    python -m tests.raft.kv_faults --rounds 20

Each round has one fault, and ends when the cluster is whole again. In the end the history of every key must have an
explanation (`linearizable`): no acknowledged set is lost, no get goes back. Then the times are told that passed between
the loss of a leader and the first set that another acknowledged.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from examples.raft_kv.client import Client

from tests.raft.kv_cluster import KvCluster
from tests.raft.linearizable import NotLinearizableError, Operation, check_linearizable

KEYS = ("city", "river", "tree")
CLIENTS = 6
#: For how long a fault that costs no leader lasts, and one that does goes on after another leads.
FAULT_S = 1.5
#: Far more than an election takes; whoever needs longer does not get there.
PATIENCE_S = 30.0


class LoadClient(Client):
    """Sets and gets, one at a time, and takes note of all of it."""

    def __init__(self, number: int, run: FaultRun) -> None:
        # Less patience than a fail-over takes: some never learn what became of their sets.
        super().__init__(run.cluster.hosts, patience_s=1.5, attempt_s=0.5)
        self._number = number
        self._run = run
        self._random = Random(f"{run.seed}/{number}")

    async def work(self) -> None:
        count = 0
        while not self._run.is_ending:
            count += 1
            key = self._random.choice(KEYS)
            # Some only read: they stay with a server that answers them, also when another leads by now.
            is_set = self._number % 3 != 0 and self._random.random() < 0.5
            await self.do(key, f"{self._number}-{count}" if is_set else None)
            await asyncio.sleep(self._random.uniform(0, 0.01))
        self.close()

    async def do(self, key: str, value: str | None) -> None:
        called_s, returned_s, is_set = time.monotonic(), math.inf, value is not None
        try:
            answer = await (self.set(key, value) if is_set else self.get(key))
            value, returned_s = answer["value"], time.monotonic()
        except TimeoutError:
            self.close()
            if not is_set:
                return
        self._run.history.append(
            Operation(
                client=self._number, key=key, value=value, is_set=is_set, called_s=called_s, returned_s=returned_s
            )
        )
        if is_set and returned_s < math.inf:
            self._run.acknowledged(self._leader_id)


@dataclass
class FaultRun:
    """A cluster under load, and what was seen of it."""

    cluster: KvCluster
    seed: int
    say: Callable[[str], None]
    history: list[Operation] = field(default_factory=list)
    fail_over_s: dict[str, list[float]] = field(default_factory=dict)
    is_ending: bool = False
    leader_id: int = -1
    _news: list[asyncio.Future[None]] = field(default_factory=list)

    def acknowledged(self, leader_id: int) -> None:
        """A set was, by this server."""
        self.leader_id = leader_id
        news, self._news = self._news, []
        for each in news:
            if not each.done():
                each.set_result(None)

    async def progress(self, *, not_by: int = -1) -> None:
        """Wait for a set that is acknowledged from now on, by another server if that is asked for."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                news = asyncio.get_running_loop().create_future()
                self._news.append(news)
                await news
                if self.leader_id != not_by:
                    return

    async def play(self, faults: Sequence[str]) -> None:
        clients = [LoadClient(number, self) for number in range(CLIENTS)]
        working = [asyncio.ensure_future(each.work()) for each in clients]
        try:
            await self.progress()
            for number, name in enumerate(faults, 1):
                await FAULTS[name](self)
                await self.progress()
                self.say(f"round {number}: {name}; {len(self.history)} operations, {self.leader_id} leads")
            self.is_ending = True
            await asyncio.gather(*working)
            for key in KEYS:
                await clients[0].do(key, None)
            clients[0].close()
        finally:
            for each in working:
                each.cancel()
            await asyncio.gather(*working, return_exceptions=True)

    async def _lose_leader(self, name: str, begin: Callable[[int], Awaitable[None]]) -> int:
        leader_id = self.leader_id
        began_s = time.monotonic()
        await begin(leader_id)
        await self.progress(not_by=leader_id)
        self.fail_over_s.setdefault(name, []).append(time.monotonic() - began_s)
        await asyncio.sleep(FAULT_S)
        return leader_id

    # Faults

    async def kill_leader(self) -> None:
        leader_id = await self._lose_leader("kill", lambda node_id: self.cluster.servers[node_id].kill())
        await self.cluster.servers[leader_id].start()

    async def kill_follower(self) -> None:
        server = self.cluster.servers[self.cluster.others(self.leader_id)[0]]
        await server.kill()
        await asyncio.sleep(FAULT_S)
        await self.progress()
        await server.start()

    async def stop_leader(self) -> None:
        async def stop(node_id: int) -> None:
            self.cluster.servers[node_id].pause()

        leader_id = self.leader_id
        try:
            await self._lose_leader("stop", stop)
        finally:
            self.cluster.servers[leader_id].resume()

    async def cut_leader(self) -> None:
        async def cut(node_id: int) -> None:
            self.cluster.cuts.isolate(node_id, self.cluster.others(node_id))

        await self._lose_leader("cut", cut)
        self.cluster.cuts.heal()

    async def silence_leader(self) -> None:
        """Others hear nothing of it, but it hears them."""

        async def silence(node_id: int) -> None:
            self.cluster.cuts.cut(*((node_id, other) for other in self.cluster.others(node_id)))

        await self._lose_leader("silence", silence)
        self.cluster.cuts.heal()

    async def cut_follower(self) -> None:
        follower_id = self.cluster.others(self.leader_id)[-1]
        self.cluster.cuts.isolate(follower_id, self.cluster.others(follower_id))
        await asyncio.sleep(2 * FAULT_S)
        await self.progress()
        self.cluster.cuts.heal()


FAULTS: dict[str, Callable[[FaultRun], Awaitable[None]]] = {
    "kill leader": FaultRun.kill_leader,
    "cut leader": FaultRun.cut_leader,
    "stop leader": FaultRun.stop_leader,
    "kill follower": FaultRun.kill_follower,
    "silence leader": FaultRun.silence_leader,
    "cut follower": FaultRun.cut_follower,
}


def faults_of(rounds: int, seed: int) -> list[str]:
    """Each kind once, then by chance."""
    random = Random(seed)
    return [*FAULTS, *(random.choice([*FAULTS]) for _ in range(rounds - len(FAULTS)))][:rounds]


async def run(
    folder: Path,
    faults: Sequence[str],
    *,
    seed: int = 1,
    plant: str | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> FaultRun:
    """What was seen. Raises `NotLinearizableError` if nothing explains it."""
    async with KvCluster(folder, plant=plant) as cluster:
        seen = FaultRun(cluster, seed, say)
        try:
            await seen.play(faults)
            codes = [await each.stop() for each in cluster.servers.values()]
            if any(codes):
                raise AssertionError(f"the servers ended with {codes}")
            check_linearizable(seen.history)
        except (AssertionError, TimeoutError) as problem:
            problem.add_note(cluster.logs())
            raise
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.raft.kv_faults", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="chooses the faults after the first of each kind")
    parser.add_argument("--plant", choices=["stale-reads"], help="servers with this fault in them: it must be found")
    asked = parser.parse_args()
    say: Callable[[str], None] = lambda text: print(text, flush=True)  # noqa: E731, T201
    with tempfile.TemporaryDirectory() as folder:
        try:
            seen = asyncio.run(
                run(Path(folder), faults_of(asked.rounds, asked.seed), seed=asked.seed, plant=asked.plant, say=say)
            )
        except NotLinearizableError as found:
            say(str(found))
            return 1
    unknown = sum(each.is_unknown for each in seen.history)
    say(f"{len(seen.history)} operations, {unknown} of unknown outcome: their order is explained")
    everything = [each for times in seen.fail_over_s.values() for each in times]
    for name, times in {**seen.fail_over_s, "any of them": everything}.items():
        if times:
            median, longest = statistics.median(times), max(times)
            say(f"fail-over after {name:<12} n={len(times):<3} p50 {median:.2f} s  max {longest:.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
