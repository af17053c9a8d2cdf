"""`barnabas acls` on a node with an authorizer: rules come, show, hold and go; `explain` says why."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from barnabas import Producer
from barnabas.base.errors import BrokerError
from barnabas.testing import EmbeddedBroker
from tests.cli.tools import Tools

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.fixture
def node() -> Iterator[str]:
    """Nothing is mentioned yet, so everything is open: the rules close what they name."""
    overrides = {"authorizer.class.name": STANDARD, "allow.everyone.if.no.acl.found": "true"}
    with EmbeddedBroker(overrides=overrides) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def closed_node() -> Iterator[str]:
    """What no rule allows is denied, but not to us."""
    overrides = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}
    with EmbeddedBroker(overrides=overrides) as broker:
        yield broker.bootstrap_servers


def test_rules_are_added_listed_and_removed(barnabas: Tools, node: str) -> None:
    add = "--add --allow-principal User:ann --allow-host 10.0.0.1 --operation Read --topic clicks"
    told = barnabas.at(node, f"acls {add}")
    pattern = "ResourcePattern(resourceType=TOPIC, name=clicks, patternType=LITERAL)"
    entry = "(principal=User:ann, host=10.0.0.1, operation=READ, permissionType=ALLOW)"
    assert (told.code, told.out) == (0, f"Adding ACLs for resource `{pattern}`: \n \t{entry}\n\n")
    assert barnabas.at(node, f"acls {add}").out == f"Acl (pattern={pattern}, entry={entry}) already exists.\n"
    assert barnabas.at(node, "acls --list").out == f"Current ACLs for resource `{pattern}`:\n\t{entry}\n\n"
    assert barnabas.at(node, "acls --list --topic other").out == ""
    assert barnabas.at(node, "acls --list --principal User:bob").out == "ACLs for principal `User:bob`\n"
    assert barnabas.json_at(node, "acls --list --topic clicks --resource-pattern-type match") == [
        {
            "resourceType": "TOPIC",
            "resourceName": "clicks",
            "patternType": "LITERAL",
            "principal": "User:ann",
            "host": "10.0.0.1",
            "operation": "READ",
            "permissionType": "ALLOW",
        }
    ]
    assert barnabas.at(node, "acls --remove --topic clicks --force") == (0, "", "")
    assert barnabas.at(node, "acls --list").out == ""


def test_roles_take_what_they_need(barnabas: Tools, closed_node: str) -> None:
    node = closed_node
    resources = "--topic t --group g --transactional-id x"
    call = f"acls --add --allow-principal User:ann --producer --consumer --idempotent {resources}"
    assert barnabas.at(node, call).code == 0
    found = {(each["resourceType"], each["operation"]) for each in barnabas.json_at(node, "acls --list")}
    assert found == {
        ("TOPIC", "READ"),
        ("TOPIC", "WRITE"),
        ("TOPIC", "CREATE"),
        ("TOPIC", "DESCRIBE"),
        ("GROUP", "READ"),
        ("CLUSTER", "IDEMPOTENT_WRITE"),
        ("TRANSACTIONAL_ID", "WRITE"),
        ("TRANSACTIONAL_ID", "DESCRIBE"),
    }


def test_rules_hold_at_once_and_until_they_go(barnabas: Tools, node: str) -> None:
    with Producer(bootstrap_servers=node) as producer:
        producer.send("t", b"1").result(30)
        assert barnabas.at(node, "acls --add --deny-principal User:ANONYMOUS --operation Write --topic t").code == 0
        with pytest.raises(BrokerError, match="not allowed to use the topic"):
            producer.send("t", b"2").result(30)
        assert barnabas.at(node, "acls --remove --topic t --force").code == 0
        producer.send("t", b"3").result(30)


def test_who_denies_themselves_the_cluster_is_told_so(barnabas: Tools, node: str) -> None:
    assert barnabas.at(node, "acls --add --allow-principal User:ann --cluster").code == 0
    told = barnabas.at(node, "acls --list")
    assert told.code == 1
    assert "not allowed to do this on the cluster" in told.err


def test_explain_names_the_rule_and_what_would_help(barnabas: Tools, node: str) -> None:
    ask = f"acls explain --bootstrap-server {node} --principal User:ann --operation Read"
    words = ask.split()
    assert "no rule is about it, and allow.everyone.if.no.acl.found is true" in barnabas(*words, "--topic", "t").out
    for call in (
        "--add --allow-principal User:bob --operation Read --topic t",
        "--add --allow-principal User:ann --allow-host 10.0.0.1 --operation Read --topic t",
        "--add --allow-principal User:ann --operation Write --topic t",
    ):
        assert barnabas.at(node, f"acls {call}").code == 0
    assert barnabas(*words, "--topic", "t").out.splitlines() == [
        "User:ann may not READ topic t from an address that no rule names",
        "Decided by: no rule allows it",
        "Other rules about topic t:",
        "  ALLOW User:ann from * to WRITE TOPIC t (literal): is about another operation",
        "  ALLOW User:ann from 10.0.0.1 to READ TOPIC t (literal): is about another host",
        "  ALLOW User:bob from * to READ TOPIC t (literal): is about somebody else",
        "What would help (allows just that):",
        f"  barnabas acls --bootstrap-server {node} --add --allow-principal User:ann --operation Read --topic t",
        "Note: some rules are for certain hosts: give --host to have them count",
    ]
    assert barnabas(*words, "--topic", "t", "--host", "10.0.0.1").out.splitlines()[:2] == [
        "User:ann may READ topic t from 10.0.0.1",
        "Decided by: ALLOW User:ann from 10.0.0.1 to READ TOPIC t (literal)",
    ]


def test_explain_says_which_rule_stands_in_the_way(barnabas: Tools, closed_node: str) -> None:
    node = closed_node
    deny = "acls --add --deny-principal User:* --operation Read --topic sec --resource-pattern-type prefixed"
    assert barnabas.at(node, deny).code == 0
    call = ["acls", "explain", "--bootstrap-server", node, "--principal", "User:ann", "--operation", "read"]
    lines = barnabas(*call, "--topic", "secret").out.splitlines()
    assert lines[1] == "Decided by: DENY User:* from * to READ TOPIC sec (prefixed)"
    removal, addition = (line.strip() for line in lines if line.startswith("  barnabas"))
    assert removal.endswith(
        "--remove --deny-principal 'User:*' --deny-host '*' --operation Read --topic sec "
        "--resource-pattern-type prefixed"
    )
    assert barnabas(*_words(removal), "--force").code == 0
    assert "no rule allows it" in barnabas(*call, "--topic", "secret").out
    assert barnabas(*_words(addition)).code == 0
    assert barnabas(*call, "--topic", "secret").out.startswith("User:ann may READ topic secret")
    call[5] = "User:ANONYMOUS"
    assert "super.users names it" in barnabas(*call, "--topic", "secret").out


def _words(command: str) -> list[str]:
    return shlex.split(command)[1:]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("--add --topic t", "--allow-principal or --deny-principal is missing"),
        ("--add --allow-principal ann --topic t", "'ann' is no principal"),
        ("--add --allow-principal User:a", "name at least one resource"),
        ("--add --list", "give exactly one of --add, --remove or --list"),
        ("--add --allow-principal User:a --topic t --operation Fly", "there is no operation 'Fly'"),
        ("--add --allow-principal User:a --topic t --operation ClusterAction", "ResourceType TOPIC only supports"),
        ("--add --allow-principal User:a --topic t --resource-pattern-type match", "is for --list and --remove"),
        ("--add --allow-principal User:a --producer", "--topic is missing for --producer"),
        ("--add --allow-principal User:a --consumer --topic t", "--group is missing for --consumer"),
        ("--add --allow-principal User:a --producer --topic t --operation Read", "--producer does not go with"),
        ("--list --allow-principal User:a", "--list does not go with --allow-principal"),
        ("--remove --topic t --principal User:a", "--principal goes only with --list"),
        ("--add --allow-principal User:a --topic t --idempotent", "--idempotent goes only with --producer"),
    ],
)
def test_wrong_calls_are_told_in_a_line(barnabas: Tools, call: str, told: str) -> None:
    outcome = barnabas.at("127.0.0.1:1", f"acls {call}")
    assert outcome.code == 1
    assert told in outcome.err
