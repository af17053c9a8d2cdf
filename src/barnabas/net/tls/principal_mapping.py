"""`ssl.principal.mapping.rules`: how the name in a certificate becomes the name of a principal.

Rules are tried in order. `DEFAULT` takes the name as it is; `RULE:pattern/replacement/` takes the names that the
pattern, a regular expression as Java has them, matches as a whole, and an `L` or `U` at the end puts the outcome in
small or capital letters. A name that no rule takes has no principal: its connection is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)")
_WHOLE_RULE: Final = re.compile(_RULE)
_NAMED_GROUP: Final = re.compile(r"\(\?<([A-Za-z][A-Za-z0-9]*)>")
_NAMED_REFERENCE: Final = re.compile(r"\\k<([A-Za-z][A-Za-z0-9]*)>")


@dataclass(frozen=True, slots=True)
class MappingRule:
    """One rule; without a pattern it is `DEFAULT`."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """The principal's name, or None if the rule does not take this one."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        outcome = self.pattern.sub(self._replace, name)
        return outcome.lower() if self.case == "L" else outcome.upper() if self.case == "U" else outcome

    def _replace(self, match: re.Match[str]) -> str:
        return _filled_in(self.replacement, match)


class NoMatchingRuleError(ValueError):
    """No rule takes a name."""


class PrincipalMapper:
    """The rules of a listener. Raises `ValueError` for rules that cannot be read."""

    __slots__ = ("_rules", "text")

    def __init__(self, rules: str = "DEFAULT") -> None:
        self.text = rules
        self._rules = tuple(parse_rules(rules))

    def name_of(self, distinguished_name: str) -> str:
        """The name of the principal. Raises `NoMatchingRuleError`."""
        for rule in self._rules:
            found = rule.apply(distinguished_name)
            if found is not None:
                return found
        raise NoMatchingRuleError(f"no rule of ssl.principal.mapping.rules takes the name {distinguished_name}")


def parse_rules(text: str) -> list[MappingRule]:
    """The rules that a setting spells. Raises `ValueError`."""
    rules = []
    for found in _SPLITTER.finditer(text.strip()):
        spelt = found[1]
        match = _WHOLE_RULE.match(spelt)
        if match is None or match.end() != len(spelt):
            raise ValueError(f"{spelt!r} is no rule: write DEFAULT or RULE:pattern/replacement/ with L or U behind it")
        if match[1] is not None:
            rules.append(MappingRule())
        elif match[2] is not None:
            rules.append(_rule(spelt, match))
    return rules


def _rule(spelt: str, match: re.Match[str]) -> MappingRule:
    pattern = _NAMED_REFERENCE.sub(r"(?P=\1)", _NAMED_GROUP.sub(r"(?P<\1>", match[2]))
    try:
        return MappingRule(re.compile(pattern), match[3], match[4])
    except re.error as problem:
        raise ValueError(f"{spelt!r}: its pattern is no regular expression: {problem}") from None


def _filled_in(replacement: str, match: re.Match[str]) -> str:
    """What stands for a match: `$1` and `${name}` are groups, a backslash takes the next character as it is. A number
    that no group has is text."""
    out: list[str] = []
    place = 0
    while place < len(replacement):
        each = replacement[place]
        if each == "\\" and place + 1 < len(replacement):
            out.append(replacement[place + 1])
            place += 2
        elif each == "$" and (group := re.match(r"\$(\d+)", replacement[place:])):
            digits, value = _longest_group(group[1], match)
            out.append(value)
            place += 1 + digits
        elif each == "$" and (named := re.match(r"\$\{([A-Za-z][A-Za-z0-9]*)\}", replacement[place:])):
            out.append(match.groupdict().get(named[1]) or "")
            place += named.end()
        else:
            out.append(each)
            place += 1
    return "".join(out)


def _longest_group(digits: str, match: re.Match[str]) -> tuple[int, str]:
    """How many digits name a group that there is, and what it holds."""
    count = match.re.groups
    if int(digits[0]) > count:
        return len(digits), f"${digits}"
    used = 1
    while used < len(digits) and int(digits[: used + 1]) <= count:
        used += 1
    return used, match[int(digits[:used])] or ""
