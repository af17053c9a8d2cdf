"""SCRAM against another implementation of it, against the example of the RFC, and against bad input."""

from __future__ import annotations

import base64

import pytest
import scramp
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.sasl import SCRAM_MECHANISMS, Authenticated, Mechanism, SaslError
from barnabas.base.sasl.scram import ScramClient, ScramCredential, ScramLogin, ScramServer
from barnabas.base.sasl.scram_messages import ClientFirst, ServerFirst, escaped, unescaped

SALT = b"0123456789abcdef"
PASSWORD = "swordfish"


def login(mechanism: Mechanism, user: str = "ann", password: str = PASSWORD) -> ScramLogin:
    return ScramLogin(ScramCredential.of_password(password, mechanism, SALT, 4096), Authenticated(user))


def server(mechanism: Mechanism, *users: str, nonce: str = "server") -> ScramServer:
    known = {user: login(mechanism, user) for user in users or ("ann",)}
    return ScramServer(mechanism, lambda user, is_token: None if is_token else known.get(user), nonce, b"decoy")


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
@pytest.mark.parametrize("user", ["ann", "a,b=c", "ä user"])
def test_both_sides_convince_each_other(mechanism: Mechanism, user: str) -> None:
    ours, client = server(mechanism, user), ScramClient(mechanism, user, PASSWORD, "client")
    proof = client.respond(ours.respond(client.first()))
    assert proof is not None
    assert ours.outcome is None
    assert client.respond(ours.respond(proof)) is None
    assert ours.outcome == Authenticated(user)


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
def test_our_client_convinces_scramp(mechanism: Mechanism) -> None:
    machine = scramp.ScramMechanism(mechanism)
    credential = machine.make_auth_info(PASSWORD, iteration_count=4096, salt=SALT)
    theirs = machine.make_server(lambda user: credential)
    client = ScramClient(mechanism, "ann", PASSWORD, "client")
    theirs.set_client_first(client.first().decode())
    proof = client.respond(theirs.get_server_first().encode())
    assert proof is not None
    theirs.set_client_final(proof.decode())
    assert client.respond(theirs.get_server_final().encode()) is None


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
def test_scramps_client_convinces_us(mechanism: Mechanism) -> None:
    theirs, ours = scramp.ScramClient([mechanism], "ann", PASSWORD), server(mechanism)
    theirs.set_server_first(ours.respond(theirs.get_client_first().encode()).decode())
    theirs.set_server_final(ours.respond(theirs.get_client_final().encode()).decode())
    assert ours.outcome == Authenticated("ann")


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
def test_what_a_server_keeps_is_what_scramp_keeps(mechanism: Mechanism) -> None:
    salt, stored_key, server_key, iterations = scramp.ScramMechanism(mechanism).make_auth_info(
        PASSWORD, iteration_count=8192, salt=SALT
    )
    ours = ScramCredential.of_password(PASSWORD, mechanism, SALT, 8192)
    assert (ours.salt, ours.stored_key, ours.server_key, ours.iterations) == (salt, stored_key, server_key, iterations)
    assert PASSWORD not in repr(ours)
    assert str(stored_key) not in repr(ours)


def test_the_example_of_rfc_7677() -> None:
    client = ScramClient(Mechanism.SCRAM_SHA_256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    proof = client.respond(b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    assert proof == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert client.respond(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


def _attempt(user: str, password: str) -> tuple[bytes, str]:
    """What the server asked for, and how it failed."""
    ours, client = server(Mechanism.SCRAM_SHA_256), ScramClient(Mechanism.SCRAM_SHA_256, user, password, "client")
    asked = ours.respond(client.first())
    proof = client.respond(asked)
    assert proof is not None
    with pytest.raises(SaslError) as failure:
        ours.respond(proof)
    assert ours.outcome is None
    assert failure.value.told is None
    return asked, str(failure.value)


def test_a_wrong_password_and_a_user_who_is_not_there_fail_alike() -> None:
    asked, why = _attempt("ann", "wrong")
    asked_nobody, why_nobody = _attempt("nobody", PASSWORD)
    assert why == why_nobody
    shown, decoy = ServerFirst.parse(asked.decode()), ServerFirst.parse(asked_nobody.decode())
    assert (len(shown.salt), shown.iterations) == (len(decoy.salt), decoy.iterations)
    assert _attempt("nobody", PASSWORD)[0] == asked_nobody, "a salt that changes would tell that there is no such user"
    assert _attempt("nobody2", PASSWORD)[0] != asked_nobody


def test_a_proof_is_good_for_one_exchange() -> None:
    """Replay: the nonce of the server is another one each time."""
    client = ScramClient(Mechanism.SCRAM_SHA_256, "ann", PASSWORD, "client")
    first, once = client.first(), server(Mechanism.SCRAM_SHA_256, nonce="one")
    proof = client.respond(once.respond(first))
    assert proof is not None
    once.respond(proof)
    with pytest.raises(SaslError, match="over"):
        once.respond(proof)
    again = server(Mechanism.SCRAM_SHA_256, nonce="two")
    again.respond(first)
    with pytest.raises(SaslError):
        again.respond(proof)
    with pytest.raises(SaslError):
        again.respond(proof.replace(b"clientone", b"clienttwo"))
    assert again.outcome is None


def test_nobody_becomes_another_by_an_authorization_id() -> None:
    """CVE-2017-12610."""
    assert server(Mechanism.SCRAM_SHA_256).respond(b"n,a=ann,n=ann,r=x")
    with pytest.raises(SaslError, match="somebody else"):
        server(Mechanism.SCRAM_SHA_256).respond(b"n,a=root,n=ann,r=x")


def test_the_extension_for_delegation_tokens_reaches_the_lookup() -> None:
    asked: list[tuple[str, bool]] = []

    def find(user: str, is_token: bool) -> None:
        asked.append((user, is_token))

    client = ScramClient(Mechanism.SCRAM_SHA_256, "id", "hmac", "client", extensions={"tokenauth": "true"})
    ScramServer(Mechanism.SCRAM_SHA_256, find, "server", b"decoy").respond(client.first())
    ScramServer(Mechanism.SCRAM_SHA_256, find, "server", b"decoy").respond(b"n,,n=id,r=x,tokenauth=false")
    assert asked == [("id", True), ("id", False)]


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"y,,n=ann,r=x",
        b"p=tls-unique,,n=ann,r=x",
        b"n,,n=ann",
        b"n,,n=,r=x",
        b"n,,r=x,n=ann",
        b"n,,n=a=b,r=x",
        b"n,,n=ann,r=",
        b"n,,n=ann,r=x\0",
        b"\xff",
        b"n,,n=ann,r=x,",
        b"n,,n=ann,r=x,1=2",
    ],
)
def test_a_first_message_outside_the_grammar_is_refused(message: bytes) -> None:
    with pytest.raises(SaslError):
        server(Mechanism.SCRAM_SHA_256).respond(message)


@pytest.mark.parametrize(
    "challenge",
    [
        b"r=other,s=c2FsdA==,i=4096",
        b"r=client,s=c2FsdA==,i=4096",
        b"r=clientx,s=c2FsdA==,i=4095",
        b"r=clientx,s=c2FsdA==,i=999999999",
        b"r=clientx,s=c2FsdA,i=4096",
        b"r=clientx",
        b"e=other-error",
    ],
)
def test_a_client_is_not_led_astray(challenge: bytes) -> None:
    with pytest.raises(SaslError):
        ScramClient(Mechanism.SCRAM_SHA_256, "ann", PASSWORD, "client").respond(challenge)


def test_a_server_that_does_not_know_the_password_is_found_out() -> None:
    client = ScramClient(Mechanism.SCRAM_SHA_256, "ann", PASSWORD, "client")
    client.respond(b"r=clientx,s=c2FsdA==,i=4096")
    with pytest.raises(SaslError, match="false one"):
        client.respond(b"v=" + base64.b64encode(bytes(32)))
    with pytest.raises(SaslError, match="other-error"):
        client.respond(b"e=other-error")


@given(st.text(min_size=1, alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_names_travel_whole(name: str) -> None:
    assert unescaped(escaped(name)) == name
    assert ClientFirst.parse(f"n,,n={escaped(name)},r=x").user == name


@settings(max_examples=200)
@given(st.lists(st.binary(max_size=120), max_size=4), st.booleans())
def test_no_bytes_do_more_than_fail(tokens: list[bytes], is_begun: bool) -> None:
    ours = server(Mechanism.SCRAM_SHA_512)
    if is_begun:
        ours.respond(b"n,,n=ann,r=x")
    for token in tokens:
        try:
            ours.respond(token)
        except SaslError:
            break
    assert ours.outcome is None
