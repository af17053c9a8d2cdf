"""The table of transitions: all that the machine does is in it, and all that is in it happens in some story."""

from __future__ import annotations

import pytest

from barnabas.base.errors import InvariantError
from barnabas.raft.transitions import TRANSITIONS, Role, check_transition, diagram
from tests.raft.story import Story, retell
from tests.raft.test_stories import DOCUMENT, STORIES, retell_document


def test_every_transition_of_the_table_is_made_in_some_story() -> None:
    """That none is made which is not in the table, the machine checks itself at each of them."""
    made: set[tuple[Role, Role]] = set()
    _, stories = retell_document(DOCUMENT.read_text(encoding="utf-8"))
    for path in STORIES:
        stories.append(Story())
        retell(path.read_text(encoding="utf-8"), stories[-1])
    for story in stories:
        made |= story.transitions
    assert not {(old.value, new.value) for old, new in set(TRANSITIONS) - made}
    assert not made - set(TRANSITIONS)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (Role.UNATTACHED, Role.LEADER),
        (Role.FOLLOWER, Role.CANDIDATE),
        (Role.LEADER, Role.CANDIDATE),
        (Role.RESIGNED, Role.LEADER),
    ],
)
def test_what_is_not_in_the_table_is_an_error(old: Role, new: Role) -> None:
    with pytest.raises(InvariantError, match=f"{old.value} cannot become {new.value}"):
        check_transition(old, new)


def test_the_document_shows_the_table() -> None:
    pictures = DOCUMENT.read_text(encoding="utf-8").split("```mermaid\n")[1:]
    assert [each.partition("```")[0] for each in pictures] == [diagram() + "\n"]
