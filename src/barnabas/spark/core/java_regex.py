r"""Java's regular expressions, as `subscribePattern` has them, in Python's terms.

They are matched against names of topics only, which are ASCII. So every class, whatever its notation (`\p{Lower}`,
`[a-z&&[^aeiou]]`), is a set of ASCII characters, and is written out as one; flags are worked into what they concern
(`(?i)a` becomes `[Aa]`), since Java turns them on and off in the middle and Python does not. What is left, groups,
repetition and look-around, is written alike in both. What Python cannot do is refused, in words.
"""

from __future__ import annotations

import functools
import re
import string
from typing import Final

_ALL: Final = frozenset(map(chr, range(128)))
_LOWER: Final = frozenset(string.ascii_lowercase)
_UPPER: Final = frozenset(string.ascii_uppercase)
_DIGITS: Final = frozenset(string.digits)
_LETTERS: Final = _LOWER | _UPPER
_WORD: Final = _LETTERS | _DIGITS | {"_"}
_SPACE: Final = frozenset(" \t\n\x0b\f\r")
_BLANK: Final = frozenset(" \t")
_PUNCTUATION: Final = frozenset(string.punctuation)
_CONTROL: Final = frozenset(map(chr, [*range(32), 127]))

_BY_LETTER: Final = {"d": _DIGITS, "s": _SPACE, "w": _WORD, "h": _BLANK, "v": frozenset("\n\x0b\f\r")}
_CHARACTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
#: What `\p{…}` can name, as far as it concerns ASCII.
_BY_NAME: Final = {
    "Lower": _LOWER,
    "Upper": _UPPER,
    "ASCII": _ALL,
    "Alpha": _LETTERS,
    "Digit": _DIGITS,
    "Alnum": _LETTERS | _DIGITS,
    "Punct": _PUNCTUATION,
    "Graph": _LETTERS | _DIGITS | _PUNCTUATION,
    "Print": _LETTERS | _DIGITS | _PUNCTUATION | {" "},
    "Blank": _BLANK,
    "Cntrl": _CONTROL,
    "XDigit": frozenset(string.hexdigits),
    "Space": _SPACE,
    "L": _LETTERS,
    "Ll": _LOWER,
    "Lu": _UPPER,
    "N": _DIGITS,
    "Nd": _DIGITS,
    "P": _PUNCTUATION - frozenset("$+<=>^`|~"),
    "IsAlphabetic": _LETTERS,
    "IsLetter": _LETTERS,
    "IsLowercase": _LOWER,
    "IsUppercase": _UPPER,
    "IsDigit": _DIGITS,
    "IsLatin": _LETTERS,
    "InBasicLatin": _ALL,
    "javaLowerCase": _LOWER,
    "javaUpperCase": _UPPER,
    "javaLetter": _LETTERS,
    "javaDigit": _DIGITS,
    "javaLetterOrDigit": _LETTERS | _DIGITS,
}
_NEVER: Final = "(?!)"
_MOST_REPETITIONS: Final = 65_535
_REPETITION: Final = re.compile(r"\{([0-9]{1,9})(?:(,)([0-9]{1,9})?)?\}")
_GROUP_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_FLAGS: Final = re.compile(r"\?([idmsuxU]*)(?:-([idmsuxU]*))?([:)])")
_OPENINGS: Final = ("?:", "?=", "?!", "?>", "?<=", "?<!")


class RegexError(ValueError):
    """The expression is wrong, or uses something of Java's that Python lacks."""


@functools.lru_cache(maxsize=64)
def compile_java(regex: str) -> re.Pattern[str]:
    r"""The expression for Python, to be used on ASCII text; `RegexError` says what is wrong with it.

    >>> bool(compile_java(r"^(?i)Clicks-\p{Digit}+$").search("clicks-7"))
    True
    """
    try:
        return re.compile(_Translation(_without_quotations(regex)).whole(), re.ASCII)
    except re.error as problem:
        raise RegexError(f"Python's regular expressions cannot do this: {problem.msg}") from None
    except (OverflowError, RecursionError):
        raise RegexError("it is too large") from None


def _without_quotations(regex: str) -> str:
    r"""What stands between `\Q` and `\E`, with a backslash before every character that could mean something."""
    text, place = [], 0
    while place < len(regex):
        if regex.startswith("\\Q", place):
            end = regex.find("\\E", place)
            quoted = regex[place + 2 : end if end >= 0 else len(regex)]
            text += [sign if sign in _LETTERS | _DIGITS or sign not in _ALL else "\\" + sign for sign in quoted]
            place = end + 2 if end >= 0 else len(regex)
        else:
            width = 2 if regex[place] == "\\" else 1
            text.append(regex[place : place + width])
            place += width
    return "".join(text)


class _Translation:
    """One walk over an expression, by recursive descent."""

    def __init__(self, regex: str) -> None:
        self._regex = regex
        self._place = 0
        self._ignores_case = False
        self._has_comments = False
        self._groups = 0
        self._names: set[str] = set()

    def whole(self) -> str:
        translated = self._alternatives()
        if self._place < len(self._regex):
            raise RegexError(f"there is a ')' without a '(' at position {self._place}")
        return translated

    # Groups and sequences

    def _alternatives(self) -> str:
        """Up to the end of the group. Flags that are set on the way hold to its end, also behind a '|'."""
        flags = self._ignores_case, self._has_comments
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        self._ignores_case, self._has_comments = flags
        return "|".join(parts)

    def _sequence(self) -> str:
        parts = []
        while (sign := self._peek()) and sign not in "|)":
            part = self._atom()
            if part is not None:
                parts.append(self._repeated(part))
        return "".join(parts)

    def _atom(self) -> str | None:
        sign = self._next()
        if sign == "(":
            return self._group()
        if sign == "[":
            return _written(self._class())
        if sign == "\\":
            return self._escape()
        if sign == ".":
            return _written(_ALL - {"\n", "\r"})
        if sign == "^":
            return r"\A"
        if sign == "$":
            return r"\Z"
        if sign in "*+?{":
            raise RegexError(f"there is nothing that {sign!r} could repeat at position {self._place - 1}")
        return self._literal(sign)

    def _group(self) -> str | None:
        match = _FLAGS.match(self._regex, self._place)
        if match is not None and (match[1] or match[2] is not None or match[3] == ")"):
            return self._group_of_flags(match)
        for opening in _OPENINGS:
            if self._regex.startswith(opening, self._place):
                self._place += len(opening)
                return self._closed(f"({opening}")
        if not self._regex.startswith("?", self._place):
            self._groups += 1
            return self._closed("(")
        name = _GROUP_NAME.match(self._regex, self._place + 2)
        if not self._regex.startswith("?<", self._place) or name is None or not self._regex.startswith(">", name.end()):
            raise RegexError(f"there is no such kind of group at position {self._place}")
        if name[0] in self._names:
            raise RegexError(f"two groups are called {name[0]!r}")
        self._place = name.end() + 1
        self._groups += 1
        self._names.add(name[0])
        return self._closed(f"(?P<{name[0]}>")

    def _group_of_flags(self, match: re.Match[str]) -> str | None:
        before = self._ignores_case, self._has_comments
        self._place = match.end()
        # The other flags are about line ends and letters beyond ASCII, which no topic has.
        for flags, is_on in (match[1], True), (match[2] or "", False):
            self._ignores_case = is_on if "i" in flags else self._ignores_case
            self._has_comments = is_on if "x" in flags else self._has_comments
        if match[3] == ")":
            return None
        translated = self._closed("(?:")
        self._ignores_case, self._has_comments = before
        return translated

    def _closed(self, opening: str) -> str:
        translated = f"{opening}{self._alternatives()})"
        if not self._take(")"):
            raise RegexError("a group is not closed")
        return translated

    def _repeated(self, atom: str) -> str:
        match = _REPETITION.match(self._regex, self._place) if self._peek() == "{" else None
        if match is not None:
            self._place = match.end()
            if int(match[3] or match[1]) < int(match[1]):
                raise RegexError(f"{match[0]} has a minimum above its maximum")
            if int(match[3] or match[1]) > _MOST_REPETITIONS:
                raise RegexError(f"{match[0]} repeats too often")
            quantifier = match[0]
        elif self._peek() == "{":
            raise RegexError(f"the repetition at position {self._place} should be like {{2}}, {{2,}} or {{2,3}}")
        elif self._peek() in ("*", "+", "?"):
            quantifier = self._next()
        else:
            return atom
        if self._peek() in ("?", "+"):
            quantifier += self._next()
        return f"(?:{atom}){quantifier}"

    # Single characters

    def _peek(self) -> str:
        """The next character that means something, or none."""
        while self._has_comments and self._place < len(self._regex):
            sign = self._regex[self._place]
            if sign == "#":
                end = re.compile(r"[\n\r]|$").search(self._regex, self._place)
                self._place = end.start() if end else len(self._regex)
            elif sign in _SPACE:
                self._place += 1
            else:
                break
        return self._regex[self._place : self._place + 1]

    def _next(self) -> str:
        sign = self._peek()
        self._place += 1
        return sign

    def _take(self, sign: str) -> bool:
        if self._peek() != sign:
            return False
        self._place += 1
        return True

    def _literal(self, sign: str) -> str:
        return _written(self._in_any_case(frozenset(sign)))

    def _in_any_case(self, signs: frozenset[str]) -> frozenset[str]:
        if not self._ignores_case:
            return signs
        ascii_letters = signs & _LETTERS
        return signs | {sign.swapcase() for sign in ascii_letters}

    def _escape(self) -> str:
        sign = self._regex[self._place : self._place + 1]
        if sign and sign in "123456789":
            return self._reference()
        if sign in ("A", "Z", "z", "b", "B", "k", "R"):
            self._place += 1
            if sign == "k":
                return self._named_reference()
            if sign == "b" and self._regex.startswith("{", self._place):
                raise RegexError(r"\b{…} is not supported")
            # A name has no line ends, so all ends are the same and a line break is never found.
            return {"A": r"\A", "b": r"\b", "B": r"\B", "R": _NEVER}.get(sign, r"\Z")
        signs = self._escaped_class()
        return _written(signs) if signs is not None else self._literal(self._escaped_character())

    def _reference(self) -> str:
        """To a group by number: as many digits as there are groups for. One to a group that is not there never fits."""
        number = int(self._regex[self._place])
        self._place += 1
        while (digit := self._regex[self._place : self._place + 1]) and digit in _DIGITS:
            if number * 10 + int(digit) > self._groups:
                break
            number = number * 10 + int(digit)
            self._place += 1
        return self._back(str(number)) if number <= self._groups else _NEVER

    def _named_reference(self) -> str:
        name = _GROUP_NAME.match(self._regex, self._place + 1)
        if not self._regex.startswith("<", self._place) or name is None or not self._regex.startswith(">", name.end()):
            raise RegexError(r"\k should be like \k<name>")
        if name[0] not in self._names:
            raise RegexError(f"there is no group called {name[0]!r} before it is referred to")
        self._place = name.end() + 1
        return f"(?i:(?P={name[0]}))" if self._ignores_case else f"(?P={name[0]})"

    def _back(self, number: str) -> str:
        return f"(?i:\\{number})" if self._ignores_case else f"(?:\\{number})"

    def _escaped_class(self) -> frozenset[str] | None:
        r"""`\d`, `\P{Alpha}` and the like, if one comes."""
        sign = self._regex[self._place : self._place + 1]
        if sign.lower() in _BY_LETTER and sign:
            self._place += 1
            return _BY_LETTER[sign.lower()] if sign.islower() else _ALL - _BY_LETTER[sign.lower()]
        if sign not in ("p", "P"):
            return None
        match = re.compile(r"[pP](?:\{([^}]*)\}|(.))").match(self._regex, self._place)
        if match is None:
            raise RegexError(f"a property is not closed at position {self._place}")
        self._place = match.end()
        name = match[1] if match[1] is not None else match[2]
        signs = _BY_NAME.get(name, _BY_NAME.get(name.removeprefix("Is")))
        if signs is None:
            raise RegexError(f"the property {name!r} is not supported; write its characters as a class")
        if self._ignores_case and signs in (_LOWER, _UPPER):
            signs = _LETTERS
        return signs if sign == "p" else _ALL - signs

    def _escaped_character(self) -> str:
        match = re.compile(
            r"0(?P<octal>[0-3]?[0-7]{1,2})|x(?P<byte>[0-9A-Fa-f]{2})|x\{(?P<code>[0-9A-Fa-f]{1,6})\}"
            r"|u(?P<unit>[0-9A-Fa-f]{4})|c(?P<control>.)|(?P<letter>[tnrfae])|(?P<itself>[^A-Za-z0-9])",
            re.DOTALL,
        ).match(self._regex, self._place)
        if match is None:
            raise RegexError(f"there is no such escape, or it is not supported: \\{self._regex[self._place :][:1]}")
        self._place = match.end()
        if match["control"]:
            return chr(ord(match["control"]) ^ 64)
        if match["letter"]:
            return _CHARACTERS[match["letter"]]
        if match["itself"]:
            return match["itself"]
        digits = match["octal"] or match["byte"] or match["code"] or match["unit"]
        code = int(digits, 8 if match["octal"] else 16)
        if code > 0x10FFFF:
            raise RegexError(f"there is no character {digits}")
        return chr(code)

    # Classes in brackets

    def _class(self) -> frozenset[str]:
        """Up to the closing bracket: unions of characters, ranges and classes, and intersections of those."""
        is_negated = self._take("^")
        signs = self._union(is_first=True)
        while self._take("&"):
            self._place += 1  # the second '&', which `_union` has seen
            signs &= self._union(is_first=False)
        if not self._take("]"):
            raise RegexError("a class in brackets is not closed")
        return _ALL - signs if is_negated else signs

    def _union(self, *, is_first: bool) -> frozenset[str]:
        signs: frozenset[str] = frozenset()
        is_empty = True
        while (sign := self._peek()) and (sign != "]" or (is_empty and is_first)):
            if self._regex.startswith("&&", self._place):
                break
            if self._take("["):
                signs |= self._class()
            else:
                signs |= self._range()
            is_empty = False
        if is_empty:
            raise RegexError("a class in brackets, or a side of its '&&', is empty")
        return signs

    def _range(self) -> frozenset[str]:
        first = self._single()
        if isinstance(first, frozenset):
            return first
        if self._peek() != "-" or self._regex[self._place + 1 : self._place + 2] in ("]", "[", "", "&"):
            return self._in_any_case(frozenset(first))
        self._place += 1
        last = self._single()
        if isinstance(last, frozenset) or last < first:
            raise RegexError(f"a range of characters is the wrong way round, or ends in a class: {first}-")
        signs = frozenset(sign for sign in _ALL if first <= sign <= last)
        return self._in_any_case(signs)

    def _single(self) -> str | frozenset[str]:
        sign = self._next()
        if sign != "\\":
            return sign
        signs = self._escaped_class()
        return signs if signs is not None else self._escaped_character()


def _written(signs: frozenset[str]) -> str:
    """A set of characters as Python writes it. What is not ASCII stays: it is found in no name, but belongs there."""
    if not signs:
        return _NEVER
    if len(signs) == 1:
        return re.escape(next(iter(signs)))
    return f"[{''.join(map(re.escape, sorted(signs)))}]"
