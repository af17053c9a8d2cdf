"""Whether brokers would take a regular expression: they use RE2, which knows less than Python, and some things more."""

from __future__ import annotations

import re
import warnings
from typing import Final

_CLASSES: Final = "alnum|alpha|ascii|blank|cntrl|digit|graph|lower|print|punct|space|upper|word|xdigit"
#: What RE2 leaves out, since it could not be matched in linear time.
_MISSING: Final = (
    (re.compile(r"\(\?(?:<?[=!])"), "look-around is not supported: {}"),
    (re.compile(r"\(\?>"), "atomic groups are not supported: {}"),
    (re.compile(r"\(\?\("), "conditions are not supported: {}"),
    (re.compile(r"\(\?#"), "comments are not supported: {}"),
    (re.compile(r"\(\?P=\w*"), "references to groups are not supported: {}"),
    (re.compile(r"\\[1-9]"), "references to groups are not supported: {}"),
    (re.compile(r"\\[CGKNRUXZhku]"), "invalid escape sequence: {}"),
    (re.compile(r"\(\?[imsU]*[aLux]"), "no such flag: {}"),
    (re.compile(r"\[:\^?[a-z]*:\]"), "no such class: {}"),
    (re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})\+"), "invalid nested repetition operator: {}"),
)
#: What only RE2 knows, and something of Python's that has the same form.
_ONLY_RE2: Final = (
    (re.compile(r"\\Q.*?(?:\\E|$)", re.DOTALL), "x"),
    (re.compile(r"\\[pP](?:\{\^?[A-Za-z_]+\}|[A-Z])"), r"\\w"),
    (re.compile(rf"\[:\^?(?:{_CLASSES}):\]"), "x"),
    (re.compile(r"\\z"), "$"),
    # Here it repeats what is empty, and there ends a range that begins with a class.
    (re.compile(r"[$^](?=[*+?])"), "x"),
    (re.compile(r"(\\[dDsSwW])-(?=[^\]])"), r"\1\-"),
    (re.compile(r"\\x\{[0-9A-Fa-f]{1,6}\}"), "x"),
    (re.compile(r"\(\?<(?=[A-Za-z_])"), "(?P<"),
    (re.compile(r"\(\?([ims]*)U([ims]*)(-[imsU]+)?([:)])"), r"(?\1\2\4"),
)
_MAX_REPEAT: Final = 1000
_REPEAT: Final = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_CLASS: Final = re.compile(r"\[\^?\]?(?:\[:\^?[a-z]+:\]|\\.|[^\]\\])*\]")
_ESCAPED: Final = re.compile(r"\\\\")


def _escapes(match: re.Match[str]) -> str:
    """What is left of a class: its escapes, and the names in it."""
    return "x" + "".join(re.findall(r"\\.|\[:\^?[a-z]*:\]", match[0]))


def problem_with(regex: str) -> str | None:
    r"""What RE2 has against it, if anything.

    >>> problem_with("clicks-.*"), problem_with("(a"), problem_with("(?!a)b")
    (None, 'missing ), unterminated subpattern at position 0', 'look-around is not supported: (?!')
    """
    text = _ESCAPED.sub("x", regex)
    for pattern, replacement in _ONLY_RE2:
        text = pattern.sub(replacement, text)
    # Within a class nothing but its escapes has a meaning of its own.
    outside = _CLASS.sub(_escapes, text)
    for pattern, problem in _MISSING:
        match = pattern.search(outside)
        if match is not None:
            return problem.format(match[0])
    for match in _REPEAT.finditer(outside):
        if any(int(number) > _MAX_REPEAT for number in match.groups() if number):
            return f"invalid repeat count: {match[0]}"
    try:
        with warnings.catch_warnings():
            # What may get another meaning in a later Python has its own here.
            warnings.simplefilter("ignore", FutureWarning)
            re.compile(re.sub(r"\(\?[ims]*\)", "", text))
    except re.error as error:
        return str(error)
    return None
