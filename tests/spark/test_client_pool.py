"""Clients are lent to one task after the other, and never after they failed."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Generator, Mapping

import pytest

from barnabas.spark.pool import ClientPool


class _Fake:
    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = dict(settings)
        self.closed = threading.Event()

    def close(self, timeout: float | None = None) -> None:
        assert timeout == 0
        self.closed.set()


class _World:
    def __init__(self, idle_s: float = 600.0) -> None:
        self.made: list[_Fake] = []
        self.now_s = 0.0
        self.pool = ClientPool(self._make, idle_s=idle_s, now_s=lambda: self.now_s)

    def _make(self, settings: Mapping[str, str]) -> _Fake:
        self.made.append(_Fake(settings))
        return self.made[-1]

    def use(self, settings: Mapping[str, str]) -> _Fake:
        with self.pool.lend(settings) as client:
            return client


@pytest.fixture
def world() -> _World:
    return _World()


def test_the_next_task_with_the_same_settings_gets_the_same_client(world: _World) -> None:
    first = world.use({"a": "1", "b": "2"})
    assert world.use({"b": "2", "a": "1"}) is first
    assert world.use({"a": "1"}) is not first


def test_two_tasks_at_once_never_share_one(world: _World) -> None:
    with world.pool.lend({}) as one, world.pool.lend({}) as other:
        assert one is not other
    assert world.pool.idle_count == 2


def test_one_that_failed_is_closed_and_not_lent_again(world: _World) -> None:
    def fail() -> None:
        with world.pool.lend({}):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert world.made[0].closed.is_set()
    assert world.use({}) is world.made[1]


def test_a_generator_that_is_closed_early_gives_its_client_back(world: _World) -> None:
    def rows() -> Generator[_Fake]:
        with world.pool.lend({}) as client:
            yield client

    one = rows()
    client = next(one)
    one.close()
    assert not client.closed.is_set()
    assert world.use({}) is client


def test_those_that_nobody_asks_for_are_closed(world: _World) -> None:
    world.use({"a": "1"})
    world.now_s = 300.0
    world.use({"b": "2"})
    world.now_s = 601.0
    world.pool.close_idle()
    assert [fake.closed.is_set() for fake in world.made] == [True, False]
    world.pool.close()
    assert world.made[1].closed.is_set()
    assert world.pool.idle_count == 0


def test_idle_ones_are_closed_though_no_task_comes() -> None:
    world = _World(idle_s=0.01)
    world.use({})
    world.now_s = 1.0
    assert world.made[0].closed.wait(10)


def test_a_forked_process_starts_with_an_empty_pool(world: _World) -> None:
    mine = world.use({})
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()

    def child() -> None:
        answers.put((world.pool.idle_count, world.use({}) is mine))

    # A fork may come while another thread holds the lock.
    with world.pool._lock:
        process = context.Process(target=child)
        process.start()
    process.join(20)
    assert answers.get() == (0, False)
    assert world.use({}) is mine
