"""`barnabas delegation-tokens`, and logging in by what it gives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.testing import EmbeddedBroker
from barnabas.testing.security import Security
from tests.cli.tools import Tools

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
SECRET_KEY = "a-key-of-the-cluster"


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    users = Security(users={"node": "node-secret", "ann": "swordfish"})
    with EmbeddedBroker(security=users, overrides={"delegation.token.secret.key": SECRET_KEY}) as made:
        yield made


def login(folder: Path, user: str, password: str, more: str = "") -> str:
    file = folder / f"{user}.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        f'sasl.jaas.config={MODULE} required username="{user}" password="{password}"{more};\n'
    )
    return f"--command-config {file}"


@pytest.mark.shows_secrets
def test_a_token_is_asked_for_used_and_ended(barnabas: Tools, broker: EmbeddedBroker, tmp_path: Path) -> None:
    at, ann = broker.bootstrap_servers, login(tmp_path, "ann", "swordfish")
    create = f"delegation-tokens {ann} --create --max-life-time-period 3600000 --renewer-principal User:node"
    made = barnabas.json_at(at, create)[0]
    assert (made["owner"], made["requester"], made["renewers"]) == ("User:ann", "User:ann", "[User:node]")
    shown = barnabas.at(at, f"delegation-tokens {ann} --describe")
    assert shown.out.split("\n")[1].split()[:3] == ["TOKENID", "HMAC", "OWNER"]
    assert made["tokenid"] in shown.out

    by_token = login(tmp_path, made["tokenid"], made["hmac"], ' tokenauth="true"')
    assert barnabas.at(at, f"topics {by_token} --list").code == 0
    refused = barnabas.at(at, f"delegation-tokens {by_token} --create --max-life-time-period -1")
    assert refused.code != 0, "who came by a token gets no other"

    renewed = barnabas.at(at, f"delegation-tokens {ann} --renew --hmac {made['hmac']} --renew-time-period 60000")
    assert renewed.out.startswith("Completed renew operation. New expiry date :"), renewed
    ended = barnabas.at(at, f"delegation-tokens {ann} --expire --hmac {made['hmac']}")
    assert ended.out.startswith("Completed expire operation."), ended
    assert made["tokenid"] not in barnabas.at(at, f"delegation-tokens {ann} --describe").out
    late = barnabas.at(at, f"topics {by_token} --list")
    assert late.code != 0
    assert made["hmac"] not in late.out + late.err


def test_what_is_wrong_is_said(barnabas: Tools, broker: EmbeddedBroker, tmp_path: Path) -> None:
    at, ann = broker.bootstrap_servers, login(tmp_path, "ann", "swordfish")
    assert "base64" in barnabas.at(at, f"delegation-tokens {ann} --expire --hmac not!base64").err
    unknown = barnabas.at(at, f"delegation-tokens {ann} --renew --hmac bm9uZQ==")
    assert unknown.code != 0
    assert "DELEGATION_TOKEN_NOT_FOUND" in unknown.err
    assert "--max-life-time-period" in barnabas.at(at, f"delegation-tokens {ann} --create").err
