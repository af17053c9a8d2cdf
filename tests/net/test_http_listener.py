"""A listener for programs that watch: what it answers, and what strangers cannot make it do."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from barnabas.net import ListenError
from barnabas.net.http_listener import HttpAnswer, HttpConnection, HttpLimits, HttpListener


async def page() -> HttpAnswer:
    return HttpAnswer(body=b"text\n")


async def broken() -> HttpAnswer:
    raise ZeroDivisionError


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        return await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()


def get(path: str, user: str | None = None) -> bytes:
    known = "" if user is None else f"Authorization: Basic {b64encode(user.encode()).decode()}\r\n"
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n{known}\r\n".encode()


def test_pages_and_what_is_none() -> None:
    asyncio.run(pages_and_what_is_none())


async def pages_and_what_is_none() -> None:
    listener = HttpListener({"/text": page, "/broken": broken})
    port = await listener.start("127.0.0.1", 0)
    try:
        answer = await ask(port, get("/text?name=x"))
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith(b"\r\n\r\ntext\n")
        assert (await ask(port, b"HEAD /text HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\n")
        for request, status in (
            (get("/nowhere"), b"404"),
            (get("/broken"), b"500"),
            (b"POST /text HTTP/1.1\r\n\r\n", b"405"),
            (b"nonsense\r\n\r\n", b"400"),
            (b"\x16\x03\x01\x00\xff" + b"\0" * 9000, b"431"),
        ):
            assert (await ask(port, request)).split(b" ")[1] == status
    finally:
        await listener.stop()
    assert not listener.connections


def test_a_taken_port_is_told_with_what_chooses_another() -> None:
    asyncio.run(a_taken_port_is_told_with_what_chooses_another())


async def a_taken_port_is_told_with_what_chooses_another() -> None:
    first, second = HttpListener({}), HttpListener({})
    port = await first.start("127.0.0.1", 0)
    try:
        with pytest.raises(ListenError, match=r"; choose another with --metrics or metrics\.listener=\.\.\.$"):
            await second.start("127.0.0.1", port)
    finally:
        await first.stop()


def test_whoever_must_be_known() -> None:
    asyncio.run(whoever_must_be_known())


async def whoever_must_be_known() -> None:
    listener = HttpListener(
        {"/text": page, "/open": page}, user="me", password="secret", open_paths=frozenset({"/open"})
    )
    port = await listener.start("127.0.0.1", 0)
    try:
        assert b" 200 " in await ask(port, get("/text", "me:secret"))
        assert b" 200 " in await ask(port, get("/open"))
        for user in (None, "me:wrong", "you:secret", ""):
            answer = await ask(port, get("/text", user))
            assert b" 401 " in answer
            assert b'WWW-Authenticate: Basic realm="barnabas"' in answer
        assert b" 401 " in await ask(port, b"GET /text HTTP/1.1\r\nAuthorization: Basic ???\r\n\r\n")
        assert b" 401 " in await ask(port, b"GET /text HTTP/1.1\r\nAuthorization: Bearer x\r\n\r\n")
    finally:
        await listener.stop()


def test_who_never_asks_or_never_reads_is_let_go() -> None:
    asyncio.run(who_never_asks_or_never_reads_is_let_go())


async def who_never_asks_or_never_reads_is_let_go() -> None:
    large = b"x" * 30_000_000

    async def much() -> HttpAnswer:
        return HttpAnswer(body=large)

    listener = HttpListener({"/much": much}, limits=HttpLimits(connections=2, request_s=3.0, answer_s=3.0))
    port = await listener.start("127.0.0.1", 0)
    try:
        silent, silent_writer = await asyncio.open_connection("127.0.0.1", port)
        unread, deaf = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        deaf.write(get("/much"))
        await until(lambda: len(listener.connections) == 2)
        assert b" 503 " in await ask(port, get("/much"))
        with suppress(ConnectionError):
            assert await asyncio.wait_for(silent.read(100), 30) == b""
        await until(lambda: not listener.connections)  # neither keeps a place
        assert not unread.at_eof()
        silent_writer.close()
        deaf.close()
    finally:
        await listener.stop()


class Asker(asyncio.Transport):
    """One that is connected to a listener, and takes what it is sent when it leaves."""

    def __init__(self, listener: HttpListener) -> None:
        super().__init__()
        self.listener = listener
        self.connection = HttpConnection(listener)
        self.sent = b""
        self.is_aborted = False
        self.connection.connection_made(self)

    def write(self, data: Any) -> None:
        self.sent += data

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """It has not left yet."""

    def abort(self) -> None:
        self.is_aborted = True

    async def ask(self, request: bytes) -> int:
        """The status of the answer."""
        self.connection.get_buffer(-1)[: len(request)] = request
        self.connection.buffer_updated(len(request))
        await asyncio.gather(*self.listener.tasks)
        return int(self.sent.split(b" ")[1])

    def leave(self) -> None:
        self.connection.connection_lost(None)


def test_who_does_not_read_holds_no_more_than_some_texts_together() -> None:
    asyncio.run(who_does_not_read_holds_no_more_than_some_texts_together())


async def who_does_not_read_holds_no_more_than_some_texts_together() -> None:
    pages = {
        "/text": lambda: body(30_000),
        "/huge": lambda: body(200_000),
        "/short": lambda: body(100),
    }
    listener = HttpListener(pages, limits=HttpLimits(untaken_bytes=70_000))
    askers = [Asker(listener) for _ in range(3)]
    assert [await each.ask(get("/text")) for each in askers] == [200, 200, 503]
    assert len(askers[2].sent) < 200
    assert await Asker(listener).ask(b"HEAD /text HTTP/1.1\r\n\r\n") == 200
    assert await Asker(listener).ask(get("/short")) == 200, "else who only asks whether it lives finds it dead"
    askers[0].leave()
    assert await Asker(listener).ask(get("/text")) == 200
    for connection in list(listener.connections):
        connection.connection_lost(None)
    assert listener.untaken_bytes == 0
    assert await Asker(listener).ask(get("/huge")) == 200, "a text that is larger is told to one at a time"
    assert await Asker(listener).ask(get("/text")) == 503


def test_who_has_read_for_too_long_makes_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(who_has_read_for_too_long_makes_room_for_others(monkeypatch))


async def who_has_read_for_too_long_makes_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    now_s = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now_s)
    listener = HttpListener({"/text": lambda: body(30_000)}, limits=HttpLimits(untaken_bytes=70_000))
    deaf = Asker(listener)
    assert await deaf.ask(get("/text")) == 200
    now_s += 1
    others = [Asker(listener) for _ in range(3)]
    assert [await each.ask(get("/text")) for each in others[:2]] == [200, 503]
    now_s += 1
    assert await others[2].ask(get("/text")) == 200
    assert [each.is_aborted for each in (deaf, *others)] == [True, False, False, False]
    deaf.leave()
    assert listener.untaken_bytes == 60_000


async def body(size_bytes: int) -> HttpAnswer:
    return HttpAnswer(parts=[b"x" * size_bytes])


def test_a_probe_is_answered_whoever_else_is_connected() -> None:
    asyncio.run(a_probe_is_answered_whoever_else_is_connected())


async def a_probe_is_answered_whoever_else_is_connected() -> None:
    listener = HttpListener({"/text": page, "/live": page}, open_paths=frozenset({"/live"}))
    deaf = [Asker(listener) for _ in range(200)]
    assert {await each.ask(get("/text")) for each in deaf} == {200}
    assert await Asker(listener).ask(get("/live")) == 200
    assert await Asker(listener).ask(get("/text")) == 503, "the reserve is for probes"
    assert not any(each.is_aborted for each in deaf)
    deaf[0].leave()
    assert await Asker(listener).ask(get("/text")) == 200


def test_who_says_nothing_makes_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(who_says_nothing_makes_room_for_others(monkeypatch))


async def who_says_nothing_makes_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    now_s = began_s = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now_s)
    listener = HttpListener({"/text": page, "/live": page}, open_paths=frozenset({"/live"}))
    silent = [Asker(listener) for _ in range(250)]
    assert Asker(listener).sent.startswith(b"HTTP/1.1 503 "), "they may ask yet"
    assert await silent[0].ask(get("/text")) == 200
    now_s = began_s + 1
    assert await Asker(listener).ask(get("/text")) == 200
    assert await Asker(listener).ask(get("/live")) == 200
    assert [number for number, each in enumerate(silent) if each.is_aborted] == [1, 2]
    for each in silent[1:3]:
        each.leave()  # which the listener knew
    assert len(listener.connections) == 251


def test_a_crowd_of_silent_ones_is_bounded() -> None:
    asyncio.run(a_crowd_of_silent_ones_is_bounded())


async def a_crowd_of_silent_ones_is_bounded() -> None:
    listener = HttpListener({"/text": page})
    crowd = [Asker(listener) for _ in range(2000)]
    assert len(listener.connections) == 450
    assert sum(each.sent.startswith(b"HTTP/1.1 503 ") for each in crowd) == 200
    assert sum(each.is_aborted for each in crowd) == 1550
    for each in crowd:
        each.leave()
    assert not listener.connections
    assert await Asker(listener).ask(get("/text")) == 200


def test_a_connection_that_has_ended_leaves_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(a_connection_that_has_ended_leaves_no_timer(monkeypatch))


async def a_connection_that_has_ended_leaves_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    call_later, timers = loop.call_later, list[asyncio.TimerHandle]()

    def noted(*args: Any) -> asyncio.TimerHandle:
        timers.append(call_later(*args))
        return timers[-1]

    monkeypatch.setattr(loop, "call_later", noted)
    listener = HttpListener({"/text": page}, limits=HttpLimits(connections=1, reserve=0))
    asker, excess = Asker(listener), Asker(listener)
    assert excess.sent.startswith(b"HTTP/1.1 503 ")
    assert await asker.ask(get("/text")) == 200
    for each in (asker, excess):
        each.leave()
    assert timers
    assert all(each.cancelled() for each in timers)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
