"""The phases of a connection: the table of them, and connections that follow it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.base.errors import InvariantError
from barnabas.net import ConnectionPhase, ListenerSpec
from barnabas.net.phases import AUTHENTICATION_APIS, TRANSITIONS, ConnectionEvent
from barnabas.wire.apis import ApiKey
from tests.net.worlds import Desk, Peer, Story, started

Run = Callable[[Story], None]

AUTHENTICATING = ListenerSpec("PLAINTEXT", "127.0.0.1", 0, first_phase=ConnectionPhase.AUTHENTICATING)


def test_the_table_knows_every_phase_and_every_event() -> None:
    assert set(TRANSITIONS) == set(ConnectionPhase)
    assert {event for following in TRANSITIONS.values() for event in following} == set(ConnectionEvent)
    for phase, following in TRANSITIONS.items():
        for event in ConnectionEvent:
            if event in following:
                assert phase.after(event) is following[event]
            else:
                with pytest.raises(InvariantError, match=phase.text):
                    phase.after(event)


def test_every_phase_is_reached_from_a_first_one_and_leads_to_the_end() -> None:
    reached, new = set[ConnectionPhase](), {ConnectionPhase.HANDSHAKING}
    while new:
        reached |= new
        new = {each for phase in new for each in TRANSITIONS[phase].values()} - reached
    assert reached == set(ConnectionPhase)
    for phase in set(ConnectionPhase) - {ConnectionPhase.CLOSED}:
        assert phase.after(ConnectionEvent.CLOSED) is ConnectionPhase.CLOSED


def test_nothing_is_taken_back() -> None:
    """Who is known stays known, and who ends is not open again."""
    for phase, following in TRANSITIONS.items():
        for each in following.values():
            assert phase.is_open or not each.is_open
            assert each is ConnectionPhase.CLOSED or all(each.allows(key) for key in ApiKey if phase.allows(key))


def test_before_authentication_three_apis_are_served() -> None:
    assert {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE} == AUTHENTICATION_APIS
    for phase in (ConnectionPhase.AUTHENTICATING, ConnectionPhase.CLOSING_UNAUTHENTICATED):
        assert {key for key in ApiKey if phase.allows(key)} == AUTHENTICATION_APIS
    for phase in (ConnectionPhase.READY, ConnectionPhase.CLOSING):
        assert all(phase.allows(key) for key in ApiKey)
    assert not any(ConnectionPhase.CLOSED.allows(key) for key in ApiKey)


def test_a_connection_goes_through_its_phases(run: Run) -> None:
    async def story() -> None:
        desk = Desk()
        server = await started(desk, AUTHENTICATING)
        peer = await Peer.connect(server)
        await peer.ask(b"token")
        connection = desk.requests[0][0]
        seen = [connection.phase]
        connection.become_ready("User:alice")
        seen.append(connection.phase)
        with pytest.raises(InvariantError, match="ready"):
            connection.become_ready("User:mallory")
        desk.is_patient = True
        peer.send(b"last")
        await desk.arrived(2)
        connection.close_after_response("it is time")
        connection.close_after_response("it is still time")
        seen.append(connection.phase)
        desk.answer_next()
        await peer.closed()
        connection.become_ready("User:mallory")  # too late to matter
        seen.append(connection.phase)
        assert [phase.name for phase in seen] == ["AUTHENTICATING", "READY", "CLOSING", "CLOSED"]
        assert (connection.is_closed, connection.principal) == (True, "User:alice")
        await server.stop(100)

    run(story)


def test_a_peer_that_ends_while_it_is_authenticated_is_still_answered(run: Run) -> None:
    async def story() -> None:
        desk = Desk(is_patient=True)
        server = await started(desk, AUTHENTICATING)
        peer = await Peer.connect(server)
        peer.send(b"token")
        await desk.arrived(1)
        connection = desk.requests[0][0]
        assert connection.eof_received()
        seen = [connection.phase]
        connection.become_ready("User:alice")
        seen.append(connection.phase)
        assert [phase.name for phase in seen] == ["CLOSING_UNAUTHENTICATED", "CLOSING"]
        desk.answer_next()
        assert await peer.answers(1) == [b"token"]
        await peer.closed()
        assert connection.is_closed
        await server.stop(100)

    run(story)
