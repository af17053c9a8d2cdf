"""Schemas from a registry: asked for once, waited for when it is away; what confluent's serializer wrote is read."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from barnabas.spark.decoding import Decoder, DecodingOptions
from barnabas.spark.decoding.bad_records import BadKind, BadValueError
from barnabas.spark.decoding.registry import RegistryError, SchemaRegistry
from tests.spark.decoding.batches import batch

Answer = tuple[int, Any]


@dataclass
class Registry:
    """A registry that answers as it is told, and remembers what it was asked."""

    url: str = ""
    answers: dict[str, Callable[[], Answer]] = field(default_factory=dict)
    asked: list[tuple[str, str | None]] = field(default_factory=list)

    def serve(self, path: str, *answers: Answer) -> None:
        """One after the other; the last for ever."""
        waiting = list(answers)
        self.answers[path] = lambda: waiting.pop(0) if len(waiting) > 1 else waiting[0]

    def answer(self, path: str, authorization: str | None) -> Answer:
        self.asked.append((path, authorization))
        return self.answers.get(path, lambda: (404, {"error_code": 40403, "message": "Schema not found"}))()


@pytest.fixture
def registry() -> Iterator[Registry]:
    served = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = served.answer(self.path, self.headers["Authorization"])
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_port}"
    yield served
    server.shutdown()
    thread.join()
    server.server_close()


INT = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}'


def test_a_schema_is_asked_for_once(registry: Registry) -> None:
    registry.serve("/schemas/ids/7", (200, {"schema": INT}))
    client = SchemaRegistry(registry.url + "/")
    assert client.schema(7) == client.schema(7)
    assert client.schema(7).text == INT
    assert registry.asked == [("/schemas/ids/7", None)]


def test_an_unknown_id_is_the_records_fault(registry: Registry) -> None:
    with pytest.raises(BadValueError) as caught:
        SchemaRegistry(registry.url).schema(8)
    assert caught.value.kind is BadKind.UNKNOWN_SCHEMA


def test_a_registry_that_is_away_is_waited_for(registry: Registry) -> None:
    registry.serve("/schemas/ids/7", (503, b"later"), (500, b"again"), (200, {"schema": INT}))
    waits: list[float] = []
    client = SchemaRegistry(f"http://127.0.0.1:9, {registry.url}", sleep=waits.append)
    assert client.schema(7).text == INT
    assert len(waits) == 2


def test_a_registry_that_stays_away_fails_the_task_without_telling_the_password() -> None:
    waits: list[float] = []
    client = SchemaRegistry("http://user:secret@127.0.0.1:9", sleep=waits.append)
    with pytest.raises(RegistryError) as caught:
        client.schema(7)
    assert "http://127.0.0.1:9: " in str(caught.value)
    assert "not bad" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert len(waits) == 5


@pytest.mark.parametrize("bad_records", [{"badRecords": "topic", "deadLetterTopic": "dead"}, {"badRecords": "column"}])
def test_a_registry_that_stays_away_makes_no_record_bad(
    registry: Registry, bad_records: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.spark.decoding.registry._WAITS_S", (0.0,))
    registry.serve("/schemas/ids/7", (503, b"later"))
    framing = {"valueFraming": "registry", "schemaRegistryUrl": registry.url}
    parsed = DecodingOptions.parse({"valueFormat": "avro", "valueSchema": "id int", **framing, **bad_records})
    assert parsed is not None
    # Where nobody is: a letter would take a minute, and then be another error.
    decoder = Decoder(parsed, {"bootstrap.servers": "127.0.0.1:9"})
    with pytest.raises(RegistryError, match="not bad"):
        decoder.apply(batch([b"\0\0\0\0\7\2"] * 3))
    assert len(registry.asked) == 2
    registry.serve("/schemas/ids/7", (200, {"schema": INT}))
    assert decoder.apply(batch([b"\0\0\0\0\7\2"])).column("value").to_pylist() == [{"id": 1}]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((401, {"error_code": 401}), "schemaRegistryAuth"),
        ((200, b"<html>"), "Is it a schema registry?"),
        ((404, b"no"), "404"),
        ((404, {"error_code": 404, "message": "HTTP 404 Not Found"}), "Is it a schema registry?"),
    ],
)
def test_a_wrong_answer_fails_the_task_at_once(registry: Registry, answer: Answer, words: str) -> None:
    registry.serve("/schemas/ids/7", answer)
    with pytest.raises(RegistryError, match=r"status \d+") as caught:
        SchemaRegistry(registry.url, sleep=lambda _: pytest.fail("it was waited")).schema(7)
    assert words in str(caught.value)


@pytest.mark.parametrize("body", [{"schema": INT, "references": [{"subject": "s"}]}, ["schema"]])
def test_an_answer_of_another_shape_fails_the_task(registry: Registry, body: Any) -> None:
    registry.serve("/schemas/ids/7", (200, body))
    with pytest.raises(RegistryError, match="schema 7 cannot be read"):
        SchemaRegistry(registry.url).schema(7)


def test_the_password_comes_from_the_address_or_the_option(registry: Registry) -> None:
    registry.serve("/schemas/ids/7", (200, {"schema": INT}))
    SchemaRegistry(registry.url.replace("//", "//us%20er:p%40ss@")).schema(7)
    SchemaRegistry(registry.url, "us er:p@ss").schema(7)
    assert [authorization for _, authorization in registry.asked] == ["Basic dXMgZXI6cEBzcw=="] * 2


def test_types_of_other_schemas_are_fetched_too(registry: Registry) -> None:
    user = {"type": "record", "name": "User", "fields": [{"name": "home", "type": "Place"}]}
    place = {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]}
    click = {
        "type": "record",
        "name": "Click",
        "fields": [{"name": "user", "type": "User"}, {"name": "at", "type": "Place"}],
    }
    to_place = {"name": "Place", "subject": "the place", "version": 1}
    to_user = {"name": "User", "subject": "user", "version": 3}
    registry.serve("/schemas/ids/7", (200, {"schema": json.dumps(click), "references": [to_user, to_place]}))
    registry.serve("/subjects/user/versions/3", (200, {"schema": json.dumps(user), "references": [to_place]}))
    registry.serve("/subjects/the%20place/versions/1", (200, {"schema": json.dumps(place)}))
    decoded = _decoded(
        registry.url, "user struct<home: struct<city: string>>, at struct<city: string>", [b"\0\0\0\0\7\2x\2y"]
    )
    assert decoded == [{"user": {"home": {"city": "x"}}, "at": {"city": "y"}}]
    assert len(registry.asked) == 3


def test_the_schema_of_another_format_is_the_records_fault(registry: Registry) -> None:
    registry.serve("/schemas/ids/7", (200, {"schema": "syntax", "schemaType": "PROTOBUF"}))
    with pytest.raises(Exception, match="schema 7 is one of PROTOBUF, not of Avro"):
        _decoded(registry.url, "id int", [b"\0\0\0\0\7\2"])


def _decoded(url: str, schema: str, values: list[bytes | None]) -> list[Any]:
    options = {"valueFormat": "avro", "valueSchema": schema, "valueFraming": "registry", "schemaRegistryUrl": url}
    parsed = DecodingOptions.parse(options)
    assert parsed is not None
    rows: list[Any] = Decoder(parsed).apply(batch(values)).column("value").to_pylist()
    return rows


def test_schemas_can_be_given_without_a_registry() -> None:
    options = {
        "valueFormat": "avro",
        "valueSchema": INT,
        "valueFraming": "registry",
        "schemas": json.dumps({"7": json.loads(INT)}),
    }
    parsed = DecodingOptions.parse({**options, "badRecords": "column"})
    assert parsed is not None
    decoded = Decoder(parsed).apply(batch([b"\0\0\0\0\7\2", b"\0\0\0\0\x08\2"]))
    assert decoded.column("value").to_pylist() == [{"id": 1}, None]
    assert decoded.column("_bad_record")[1]["error"].as_py() == (
        "UNKNOWN_SCHEMA: the option schemas has no schema with the id 8"
    )


def test_what_confluents_serializer_wrote_is_read(registry: Registry) -> None:
    # Written by the AvroSerializer of confluent-kafka 2.16.1, which needs five more packages to be imported.
    fields = [{"name": "page", "type": "string"}, {"name": "price", "type": ["null", "double"], "default": None}]
    schema = {"type": "record", "name": "Click", "fields": fields}
    values = [b"\0\0\0\0\1\x0c/index\0", None, b"\0\0\0\0\1\n/cart\2\0\0\0\0\0\0\4@"]
    registry.serve("/schemas/ids/1", (200, {"schema": json.dumps(schema)}))
    assert _decoded(registry.url, "page string, price double", values) == [
        {"page": "/index", "price": None},
        None,
        {"page": "/cart", "price": 2.5},
    ]
