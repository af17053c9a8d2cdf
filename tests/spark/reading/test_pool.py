"""Clients that are kept between tasks."""

from __future__ import annotations

import os

from barnabas.spark.pool import ClientPool


class Client:
    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def closed(client: Client) -> bool:
    """Asked through a function, as it changes behind the back of whoever reads a test."""
    return client.is_closed


def test_a_client_is_taken_by_one_and_found_again_by_the_next() -> None:
    pool: ClientPool[Client] = ClientPool()
    first, second = pool.take("a", Client), pool.take("a", Client)
    assert first is not second
    pool.give_back("a", first)
    assert pool.take("b", Client) is not first
    assert pool.take("a", Client) is first
    assert pool.idle_count == 0


def test_who_is_not_taken_for_long_is_closed() -> None:
    now_s = [100.0]
    pool: ClientPool[Client] = ClientPool(idle_s=300, now_s=lambda: now_s[0])
    old, young = pool.take("a", Client), pool.take("a", Client)
    pool.give_back("a", old)
    now_s[0] += 200
    pool.give_back("a", young)
    now_s[0] += 150
    pool.close_idle()
    assert (closed(old), closed(young)) == (True, False)
    assert pool.take("a", Client) is young
    pool.give_back("a", young)
    pool.close_all()
    assert closed(young)
    assert pool.idle_count == 0


def test_a_timer_closes_what_nobody_asks_for_any_more() -> None:
    pool: ClientPool[Client] = ClientPool(idle_s=0.01)
    client = pool.take("a", Client)
    pool.give_back("a", client)
    timer = pool._timer
    assert timer is not None
    assert timer.daemon
    timer.join(10)
    assert client.is_closed


def test_a_forked_process_has_an_empty_pool() -> None:
    pool: ClientPool[Client] = ClientPool()
    client = pool.take("a", Client)
    pool.give_back("a", client)
    child = os.fork()
    if not child:
        # Only by its exit code: what pytest would do in here is of no use.
        os._exit(0 if pool.idle_count == 0 and pool.take("a", Client) is not client else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert pool.idle_count == 1
    pool.close_all()
