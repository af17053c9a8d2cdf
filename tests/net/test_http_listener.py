"""A listener for programs that watch: what it answers, and what strangers cannot make it do."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress

from barnabas.net.http_listener import HttpAnswer, HttpLimits, HttpListener


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


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
