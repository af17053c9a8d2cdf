"""Names of certificates and the rules for principals: beside Java and Kafka's own mapper, and in words."""

from __future__ import annotations

import base64
import contextlib
import random

import pytest
from cryptography import x509
from cryptography.x509 import Name, NameAttribute, RelativeDistinguishedName
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID, ObjectIdentifier
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.net.tls.distinguished_names import alternative_names, rfc2253, subject_name
from barnabas.net.tls.principal_mapping import NoMatchingRuleError, PrincipalMapper, parse_rules
from tests.net.tls.worlds import alice, authority
from tests.oracles import needs_kafka, run_java

KINDS = [
    NameOID.COMMON_NAME,
    NameOID.COUNTRY_NAME,
    NameOID.LOCALITY_NAME,
    NameOID.STATE_OR_PROVINCE_NAME,
    NameOID.STREET_ADDRESS,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.USER_ID,
    NameOID.DOMAIN_COMPONENT,
    NameOID.EMAIL_ADDRESS,
    NameOID.SERIAL_NUMBER,
    NameOID.TITLE,
    ObjectIdentifier("1.2.3.4.5"),
]
VALUES = [
    "node",
    "a,b",
    "a+b",
    "#begins",
    " leads",
    "ends ",
    "  ",
    'quo"ted',
    "back\\slash",
    "<a>;b=c",
    "Zoë",
    "漢字",
    "a/b",
    "x" * 60,
]
RULES = [
    "DEFAULT",
    "",
    " DEFAULT ",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT",
    "RULE:^CN=(.*?),.*$/$1/,RULE:^O=(.*)$/o-$1/U, DEFAULT",
    "RULE:.*/x/",
    "RULE:^CN=(?<who>[^,]*).*$/${who}!/",
    r"RULE:^CN=([^,]*),.*$/\$1-$0-$9/",
    r"RULE:^CN=(a\/b).*$/$1/,DEFAULT",
    "RULE:^CN=((a)(b)).*$/$12-$3/,DEFAULT",
    "RULE:^(CN)=(.*)$/$2/X",
    "RULE:CN=(.*)/$1",
    "DEFAULT/L",
    "DEFAULT/",
    "RULE:CN/L",
    "RULE:CN=[^,]*+/$1/",
    "whatever",
    "RULE:^CN=(/$1/",
]
NAMES = [
    "CN=Duke,OU=ServiceUsers,O=Org,C=US",
    "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US",
    "cn=duke,ou=sme,dc=mycp,dc=com",
    "CN=ab,O=x",
    "O=Acme",
    "CN=a/b,O=x",
    "",
]


def encoded(text: str | bytes) -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


def asked(lines: list[str]) -> list[str | None]:
    """What Java answers; None where it refuses."""
    answers = run_java("SslNames.java", "\n".join(lines) + "\n").splitlines()
    return [None if each.startswith("!") else base64.b64decode(each).decode() for each in answers]


def some_names(count: int) -> list[Name]:
    chance = random.Random(21)
    types = [_ASN1Type.UTF8String, _ASN1Type.PrintableString, _ASN1Type.IA5String, _ASN1Type.BMPString]
    names = []
    for _ in range(count):
        parts = []
        for _ in range(chance.randrange(1, 5)):
            attributes = []
            for kind in chance.sample(KINDS, chance.choice([1, 1, 1, 2])):
                value = "DE" if kind == NameOID.COUNTRY_NAME else chance.choice(VALUES)
                type_ = chance.choice(types) if value.isascii() else _ASN1Type.UTF8String
                if kind == NameOID.COUNTRY_NAME:
                    type_ = _ASN1Type.PrintableString
                attributes.append(NameAttribute(kind, value, type_))
            parts.append(RelativeDistinguishedName(attributes))
        names.append(x509.Name(parts))
    return names


@needs_kafka()
def test_names_are_spelt_as_java_spells_them() -> None:
    names = [each.public_bytes() for each in some_names(400)]
    theirs = asked([f"name {encoded(each)}" for each in names])
    assert None not in theirs
    assert [rfc2253(each) for each in names] == theirs


@needs_kafka()
def test_rules_make_the_names_that_kafka_makes() -> None:
    cases = [(rules, name) for rules in RULES for name in NAMES]
    theirs = asked([f"rule {encoded(rules)} {encoded(name)}" for rules, name in cases])
    different = {case: (ours(*case), their) for case, their in zip(cases, theirs, strict=True) if ours(*case) != their}
    assert different == {}


def ours(rules: str, name: str) -> str | None:
    try:
        return PrincipalMapper(rules).name_of(name)
    except ValueError:
        return None


def test_a_certificate_tells_whose_it_is() -> None:
    found = x509.load_pem_x509_certificate(alice().certificate_pem.encode())
    from cryptography.hazmat.primitives.serialization import Encoding

    der = found.public_bytes(Encoding.DER)
    assert subject_name(der) == "CN=alice,O=Barnabas try-out"
    assert alternative_names(der) == frozenset()
    issued = authority().issue("n", ["localhost", "127.0.0.1", "::1"])
    der = x509.load_pem_x509_certificate(issued.certificate_pem.encode()).public_bytes(Encoding.DER)
    assert alternative_names(der) == {b"\x82\x09localhost", b"\x87\x04\x7f\0\0\1", b"\x87\x10" + bytes(15) + b"\1"}


def test_who_no_rule_takes_is_nobody() -> None:
    mapper = PrincipalMapper("RULE:^CN=(a.*),.*$/$1/")
    assert mapper.name_of("CN=alice,O=x") == "alice"
    with pytest.raises(NoMatchingRuleError, match="CN=bob"):
        mapper.name_of("CN=bob,O=x")


@given(st.binary(max_size=300))
@settings(max_examples=200)
def test_noise_is_no_certificate(data: bytes) -> None:
    for read in (subject_name, alternative_names, rfc2253):
        with contextlib.suppress(ValueError, StopIteration):
            read(data)


@given(st.text(max_size=100))
@settings(max_examples=200)
def test_any_text_is_rules_or_is_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        parse_rules(text)
