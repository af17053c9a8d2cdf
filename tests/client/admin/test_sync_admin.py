"""The admin without asyncio: made from the one with it, and the same to use."""

from __future__ import annotations

import hashlib
import hmac
import inspect
import subprocess
import sys
import threading
from base64 import b64decode, b64encode
from pathlib import Path

import pytest

import barnabas
from barnabas.base.errors import BrokerError
from barnabas.base.ids import TopicPartition
from barnabas.client.admin import Admin as AsyncAdmin
from barnabas.client.admin import NewTopic, OffsetSpec, ScramMechanism, ScramUpsertion
from barnabas.client.admin.scram import salted_password
from barnabas.client.admin.sync_admin import Admin
from barnabas.client.errors import ClientClosedError
from barnabas.testing import EmbeddedBroker

ROOT = Path(__file__).parent.parent.parent.parent


def test_it_is_up_to_date() -> None:
    checked = subprocess.run(
        [sys.executable, ROOT / "scripts" / "sync_admin", "--check"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


def test_it_has_every_call_with_the_same_signature_and_documentation() -> None:
    calls = {
        name: call
        for name, call in inspect.getmembers(AsyncAdmin, inspect.iscoroutinefunction)
        if not name.startswith("_") and name not in ("start", "close")
    }
    assert len(calls) >= 48
    for name, call in calls.items():
        other = getattr(Admin, name)
        assert inspect.signature(other) == inspect.signature(call), name
        assert other.__doc__ == call.__doc__, name
        assert call.__doc__, name


def test_it_works_from_several_threads() -> None:
    with EmbeddedBroker() as broker, barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:

        def create(number: int) -> None:
            admin.create_topics([NewTopic(f"topic-{number}", 1, 1)])

        threads = [threading.Thread(target=create, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert list(admin.list_topics()) == [f"topic-{number}" for number in range(4)]
        place = TopicPartition("topic-0", 0)
        assert admin.list_offsets({place: OffsetSpec.latest()})[place].offset == 0
        with pytest.raises(BrokerError, match="TOPIC_ALREADY_EXISTS"):
            admin.create_topics([NewTopic("topic-0")])


def test_a_closed_one_says_so() -> None:
    admin = Admin(bootstrap_servers="127.0.0.1:1")
    admin.close()
    admin.close()
    with pytest.raises(ClientClosedError):
        admin.list_topics()


def test_a_salted_password_answers_the_challenge_of_rfc_7677() -> None:
    salted = salted_password("pencil", b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), ScramMechanism.SCRAM_SHA_256, 4096)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    auth_message = (
        f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={nonce}"
    ).encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), auth_message, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    assert b64encode(proof) == b"dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(ScramUpsertion("ann", ScramMechanism.SCRAM_SHA_256, "secret", salt=b"salt"))
