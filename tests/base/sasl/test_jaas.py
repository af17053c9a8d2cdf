"""JAAS lines as people write them, and what is said of others without repeating them."""

from __future__ import annotations

import pytest

from barnabas.base.sasl import Mechanism, mechanism_called
from barnabas.base.sasl.jaas import parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_a_line_of_kafkas_handbook() -> None:
    entry = parse_jaas(
        f"""{PLAIN} required
            username="admin"
            password="admin-secret"
            user_admin="admin-secret"
            user_alice='it''s' ;
        """.replace("''", "\\'")
    )
    assert entry.module == PLAIN
    assert entry.options["username"] == "admin"
    assert entry.users == {"admin": "admin-secret", "alice": "it's"}
    assert "secret" not in repr(entry)
    entry.check_module(Mechanism.PLAIN)
    with pytest.raises(ValueError, match="ScramLoginModule"):
        entry.check_module(Mechanism.SCRAM_SHA_256)


@pytest.mark.parametrize(
    ("text", "value"),
    [('"a b"', "a b"), ('"a\\"b"', 'a"b'), ('"a\\\\b"', "a\\b"), ("plain", "plain"), ('"a;b=c"', "a;b=c"), ('""', "")],
)
def test_values_are_quoted_or_not(text: str, value: str) -> None:
    assert parse_jaas(f"{PLAIN} REQUIRED password={text};").options == {"password": value}


@pytest.mark.parametrize(
    "text",
    [
        "",
        PLAIN,
        f"{PLAIN} required",
        f'{PLAIN} required password="s3cret"',
        f'{PLAIN} password="s3cret";',
        f'{PLAIN} required password="s3cret;',
        f"{PLAIN} required password=;",
        f"{PLAIN} required s3cret;",
        f'{PLAIN} required password "s3cret";',
        f'{PLAIN} required password="s3cret"; {PLAIN} required;',
        f"{PLAIN} required password=",
        ";;;",
    ],
)
def test_other_lines_are_refused_without_telling_what_is_in_them(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w+") as problem:
        parse_jaas(text)
    assert "s3cret" not in str(problem.value)


def test_kerberos_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"GSSAPI \(Kerberos\) is not built; there are PLAIN, SCRAM-SHA-256"):
        mechanism_called("GSSAPI")
    with pytest.raises(ValueError, match="no mechanism is called DIGEST-MD5"):
        mechanism_called("DIGEST-MD5")
    assert mechanism_called("PLAIN") is Mechanism.PLAIN
