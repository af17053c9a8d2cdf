"""Settings: how they are declared, how values are converted, and what a person sees when something is wrong."""

from __future__ import annotations

import doctest
import logging
from dataclasses import FrozenInstanceError
from types import ModuleType
from typing import Any

import pytest

from barnabas.base import properties
from barnabas.base import settings as package
from barnabas.base.errors import SettingsError
from barnabas.base.properties import parse_overrides, parse_properties
from barnabas.base.settings import (
    HIGH,
    LIVE,
    NO_EFFECT,
    NOT_BUILT,
    Double,
    Int,
    InvalidSettingsError,
    Long,
    Names,
    Password,
    Plugin,
    Registry,
    Settings,
    SettingState,
    Short,
    again,
    format_value,
    names,
    rule,
    setting,
    values,
)
from barnabas.base.settings.allowed import NOT_EMPTY, at_least, between, items, like, one_of, one_of_in_any_case


class Example(Settings, title="Example"):
    """One setting of each type."""

    node_id: Int = setting("A number.", allowed=at_least(0), importance=HIGH)
    linger_ms: Long = setting("A long number.", default=5, allowed=at_least(0), state=LIVE)
    share: Double = setting("A fraction.", default=0.5, allowed=between(0, 1))
    copies: Short = setting("A short number.", default=3)
    enabled: bool = setting("A switch.", default=True)
    color: str = setting("A choice.", default="red", allowed=one_of("red", "blue"))
    mood: str = setting("A choice in any case.", default="calm", allowed=one_of_in_any_case("calm", "wild"))
    rack: str | None = setting("A text or nothing.", default=None, allowed=NOT_EMPTY)
    hosts: Names = setting("A list.", default=("a", "b"), allowed=items())
    assignor: Plugin = setting("A plug-in.", default="range", builtin={"range": "org.apache.kafka.RangeAssignor"})
    hooks: tuple[Plugin, ...] = setting("Plug-ins.", default=())
    key_password: Password | None = setting("A secret.", default=None)
    threads: Int = setting("Ignored.", default=8, state=NO_EFFECT)
    tls: bool = setting("Not there.", default=False, state=NOT_BUILT)
    tls_cache: Int = setting("Tunes what is not there.", default=1, state=NOT_BUILT, refused=False)

    @rule("linger_ms", "copies")
    def _copies_need_time(self) -> str | None:
        return "many copies need some time" if self.copies > 5 and self.linger_ms < 5 else None


def load(*sources: dict[str, Any], **keywords: Any) -> Example:
    return Example.load({"node.id": 1}, *sources, **keywords)


def problems(*sources: dict[str, Any], **keywords: Any) -> str:
    with pytest.raises(InvalidSettingsError) as caught:
        load(*sources, **keywords)
    return str(caught.value)


def test_values_are_typed_and_default() -> None:
    settings = Example(node_id=1)
    assert (settings.node_id, settings.linger_ms, settings.hosts, settings.rack) == (1, 5, ("a", "b"), None)
    assert settings == load()
    assert repr(settings) == "Example(node_id=1)"


def test_settings_are_frozen() -> None:
    settings: Any = load()
    with pytest.raises(FrozenInstanceError):
        settings.linger_ms = 6
    with pytest.raises(FrozenInstanceError):
        del settings.linger_ms


def test_later_sources_win_and_keywords_win_over_all() -> None:
    file = parse_properties("linger.ms=1\ncopies=1\ncolor=blue")
    settings = Example.load({"node.id": 1}, file, parse_overrides(["copies=2", "linger.ms=2"]), linger_ms=3)
    assert (settings.color, settings.copies, settings.linger_ms) == ("blue", 2, 3)


def test_none_means_not_given() -> None:
    assert load({"linger.ms": None}, color=None) == load()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("linger.ms", " 7 ", 7),
        ("linger.ms", "+7", 7),
        ("linger.ms", "9223372036854775807", 2**63 - 1),
        ("copies", "-32768", -32768),
        ("share", "1", 1.0),
        ("share", "1e-1", 0.1),
        ("share", ".5", 0.5),
        ("share", "0.5d", 0.5),
        ("share", 1, 1.0),
        ("enabled", "False", False),
        ("enabled", " TRUE ", True),
        ("enabled", False, False),
        ("color", " blue ", "blue"),
        ("mood", "WILD", "wild"),
        ("rack", 7, "7"),
        ("hosts", "", ()),
        ("hosts", " ", ()),
        ("hosts", "x, y ,z", ("x", "y", "z")),
        ("hosts", ["x", "y"], ("x", "y")),
        ("hosts", "x,y,x", ("x", "y")),
        ("assignor", "range", Plugin("range")),
        ("assignor", "org.apache.kafka.RangeAssignor", Plugin("range")),
        ("assignor", "my.Assignor", Plugin("my.Assignor")),
        ("hooks", "my.Hook,my.Other", (Plugin("my.Hook"), Plugin("my.Other"))),
        ("key.password", " swordfish ", Password("swordfish")),
    ],
)
def test_values_are_converted_as_kafka_does(name: str, text: object, value: object) -> None:
    assert load({name: text}).value_of(name) == value


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("linger.ms", "5s", "linger.ms = '5s': the value is not a whole number; allowed: a whole number, at least 0"),
        ("linger.ms", "5.0", "linger.ms = '5.0': the value is not a whole number; allowed: a whole number, at least 0"),
        (
            "linger.ms",
            "1_000",
            "linger.ms = '1_000': the value is not a whole number; allowed: a whole number, at least 0",
        ),
        ("linger.ms", True, "linger.ms = True: the value is not a whole number; allowed: a whole number, at least 0"),
        ("linger.ms", -1, "linger.ms = -1: the value is not allowed; allowed: a whole number, at least 0"),
        (
            "node.id",
            "2147483648",
            "node.id = '2147483648': the value does not fit between -2147483648 and 2147483647; "
            "allowed: a whole number, at least 0",
        ),
        ("share", "much", "share = 'much': the value is not a number; allowed: a number, 0 to 1"),
        ("share", "nan", "share = 'nan': the value is not a number; allowed: a number, 0 to 1"),
        ("share", "NaN", "share = 'NaN': the value is not allowed; allowed: a number, 0 to 1"),
        ("enabled", "yes", "enabled = 'yes': the value is neither true nor false; allowed: true or false"),
        ("enabled", 1, "enabled = 1: the value is neither true nor false; allowed: true or false"),
        ("color", "green", "color = 'green': the value is not allowed; allowed: one of red, blue"),
        ("mood", "sad", "mood = 'sad': the value is not allowed; allowed: one of calm, wild, in any case"),
        ("rack", "", "rack = '': the value is not allowed; allowed: text, not empty"),
        (
            "hosts",
            "a,,b",
            "hosts = 'a,,b': the value is not allowed; allowed: a list, separated by commas, items that are not empty",
        ),
        (
            "hosts",
            5,
            "hosts = 5: the value is not a list; allowed: a list, separated by commas, items that are not empty",
        ),
        (
            "assignor",
            "org.apache.kafka.Other",
            "assignor = 'org.apache.kafka.Other': the value names a Java class that has no counterpart here; "
            "allowed: range, or the dotted path of a Python class",
        ),
        (
            "assignor",
            "rnge",
            "assignor = 'rnge': the value is neither a built-in name nor the dotted path of a Python class; "
            "allowed: range, or the dotted path of a Python class",
        ),
        ("tls", "true", "tls = 'true': this is not built yet, so it is refused rather than ignored; remove it"),
    ],
)
def test_wrong_values_are_refused_with_what_is_allowed(name: str, value: object, message: str) -> None:
    assert problems({name: value}) == message


def test_an_error_says_where_the_value_was_written() -> None:
    file = parse_properties("\n\nlinger.ms = soon", origin="client.properties")
    with pytest.raises(SettingsError, match=r"^linger\.ms = 'soon' \(client\.properties line 3\): "):
        Example.load({"node.id": 1}, file)
    assert problems(linger_ms="soon").startswith("linger.ms = 'soon' (keyword argument): ")
    with pytest.raises(SettingsError, match=r"^linger\.ms = 'soon' \(--override\): "):
        Example.load({"node.id": 1}, parse_overrides(["linger.ms=soon"]))


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(InvalidSettingsError) as caught:
        Example.load({"linger.ms": "x", "color": "green"})
    assert str(caught.value).splitlines() == [
        "3 problems with settings:",
        "  - linger.ms = 'x': the value is not a whole number; allowed: a whole number, at least 0",
        "  - color = 'green': the value is not allowed; allowed: one of red, blue",
        "  - node.id is required; allowed: a whole number, at least 0",
    ]
    assert [problem.names for problem in caught.value.problems] == [("linger.ms",), ("color",), ("node.id",)]


def test_a_rule_names_all_sides_with_value_and_origin() -> None:
    assert problems({"copies": "6"}, linger_ms=1) == (
        "linger.ms = 1 (keyword argument), copies = 6: many copies need some time"
    )


def test_a_rule_is_silent_about_a_value_that_is_already_refused() -> None:
    assert len(problems({"copies": 6, "linger.ms": "x"}).splitlines()) == 1


def test_a_misspelt_keyword_is_refused_with_the_nearest_name() -> None:
    assert problems(lingr_ms=5) == "lingr_ms (keyword argument): there is no such setting; did you mean linger_ms?"
    assert problems(xyz=5) == "xyz (keyword argument): there is no such setting"


def test_unknown_names_are_warned_about_with_the_nearest_name(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="barnabas.settings"):
        settings = Example.load(
            {"node.id": 1}, parse_properties("linger_ms=5\nmy.plugin.size=3", origin="a.properties")
        )
    told = [
        "linger_ms (a.properties line 1): unknown setting, ignored unless a plug-in reads it; did you mean linger.ms?",
        "my.plugin.size (a.properties line 2): unknown setting, ignored unless a plug-in reads it",
    ]
    assert [str(warning) for warning in settings.warnings] == told
    assert caplog.messages == told


def test_repeated_entries_of_a_file_are_warned_about() -> None:
    settings = Example.load(parse_properties("node.id=1\nnode.id=2", origin="a.properties"))
    assert settings.node_id == 2
    assert [str(w) for w in settings.warnings] == [
        "node.id (a.properties): given 2 times, on lines 1, 2; the last one counts"
    ]


def test_a_setting_that_only_tunes_what_is_not_built_is_warned_about() -> None:
    assert [str(w) for w in load({"tls.cache": 2}).warnings] == [
        "tls.cache: no effect: it belongs to Example, which is not built yet"
    ]


def test_what_is_not_built_may_be_given_its_default() -> None:
    assert load({"tls": "false", "tls.cache": 1, "threads": 99}).warnings == ()


def test_extras_remember_what_a_plugin_has_read() -> None:
    settings = load({"my.size": "3", "my.color": "red", "other": "x"})
    assert settings.unused() == ("my.size", "my.color", "other")
    assert settings.extras["my.size"] == "3"
    assert settings.unused() == ("my.color", "other")
    assert settings.extras.with_prefix("my.") == {"size": "3", "color": "red"}
    assert settings.unused() == ("other",)


@pytest.mark.parametrize(
    "name", ["key.password", "my.secret", "sasl.jaas", "x.credentials", "a.private.key", "private_key"]
)
def test_secrets_never_show(name: str, caplog: pytest.LogCaptureFixture) -> None:
    settings = load({name: "swordfish"})
    shown = f"{settings!r} {settings} {settings.warnings} {settings.extras!r} {settings.__dict__!r} {caplog.text}"
    assert "swordfish" not in shown


def test_a_refused_password_does_not_show() -> None:
    assert problems(key_password=["swordfish"]) == (
        "key.password = [hidden] (keyword argument): the value is not a text; allowed: a password"
    )
    assert f"{Password('swordfish')} {Password('swordfish')!r}" == "[hidden] Password([hidden])"
    assert Password("swordfish").reveal() == "swordfish"


def test_plugins_are_resolved_late() -> None:
    assert load(assignor="range").assignor.resolve({"range": dict}) is dict
    assert load(assignor="collections.OrderedDict").assignor.resolve({}).__name__ == "OrderedDict"
    assert load(assignor=Example).assignor.resolve({}) is Example
    with pytest.raises(
        SettingsError, match=r"^cannot load 'com\.acme\.MyAssignor': No module named 'com'.*built-in ones: range$"
    ):
        load(assignor="com.acme.MyAssignor").assignor.resolve({"range": dict})


def test_live_settings_can_change_and_others_cannot() -> None:
    settings = load({"color": "blue"}, linger_ms=7)
    changed = settings.with_live_changes({"linger.ms": "9"})
    assert (settings.linger_ms, changed.linger_ms, changed.color) == (7, 9, "blue")
    assert changed.with_live_changes({"linger.ms": None}).linger_ms == 5
    with pytest.raises(
        InvalidSettingsError, match=r"^color is read at start: it cannot change while the program runs$"
    ):
        settings.with_live_changes({"color": "red"})
    with pytest.raises(InvalidSettingsError, match=r"^linger\.ms = -1 \(change at run time\): the value is not"):
        settings.with_live_changes({"linger.ms": -1})


def test_the_same_change_gives_the_same_settings() -> None:
    settings = load({"color": "blue"}, linger_ms=7)
    changed = settings.with_live_changes({"linger.ms": "9"})
    assert settings.with_live_changes({"linger.ms": "9"}) is changed
    assert settings.with_live_changes({"linger.ms": "10"}).linger_ms == 10
    assert settings.with_live_changes({"linger.ms": "9"}).linger_ms == 9
    assert settings.with_live_changes({}).linger_ms == 7
    assert changed.with_live_changes({"linger.ms": "9"}).as_loaded is settings


def test_what_is_odd_about_a_change_is_told_each_time(caplog: pytest.LogCaptureFixture) -> None:
    settings = load({"color": "blue"})
    for _ in range(2):
        caplog.clear()
        assert settings.with_live_changes({"unheard.of": "1"}).warnings
        assert "unheard.of" in caplog.text


def test_a_class_may_declare_an_inherited_setting_again() -> None:
    class Narrow(Example):
        linger_ms: Long = again(default=9)

    assert Narrow(node_id=1).linger_ms == 9
    assert Narrow.declared()["linger.ms"].doc == "A long number."
    assert Example(node_id=1).linger_ms == 5


def test_defaults_are_checked_when_declared() -> None:
    with pytest.raises(TypeError, match=r"linger\.ms: the default -1 is not allowed"):

        class Wrong(Settings):
            linger_ms: Long = setting("x", default=-1, allowed=at_least(0))

    with pytest.raises(TypeError, match="the default is None"):

        class Empty(Settings):
            linger_ms: Long = setting("x", default=None)

    with pytest.raises(TypeError, match="cannot have the type"):

        class Strange(Settings):
            linger_ms: dict[str, str] = setting("x", default={})

    with pytest.raises(TypeError, match="is not inherited"):

        class Orphan(Settings):
            linger_ms: Long = again(default=1)


def test_a_registry_knows_groups_order_and_recommended_values() -> None:
    registry = Registry("example", Example)
    assert registry["color"].recommended == ("red", "blue")
    assert [each.order for each in registry.groups()["Example"]] == list(range(len(registry)))
    assert registry["linger.ms"].state is SettingState.LIVE
    assert registry["node.id"].display_name == "node.id"
    assert registry.nearest("node-id") == "node.id"


def test_a_registry_refuses_dependents_that_do_not_exist() -> None:
    class Dangling(Settings):
        a: Int = setting("x", default=1, dependents=("b",))

    with pytest.raises(TypeError, match="a names b as a dependent"):
        Registry("dangling", Dangling)


@pytest.mark.parametrize("module", [properties, package, names, values])
def test_examples_in_docstrings_run(module: ModuleType) -> None:
    outcome = doctest.testmod(module)
    assert outcome.attempted > 0
    assert outcome.failed == 0


def test_names_can_be_given() -> None:
    class Named(Settings):
        from_: str = setting("x", default="", name="from", allowed=like(r"[a-z]*", "small letters"))

    assert Named.load({"from": "here"}).from_ == "here"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (0.0, "0.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (1234567.25, "1234567.25"),
        (1e7, "1.0E7"),
        (-12345678.5, "-1.23456785E7"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (5e-324, "4.9E-324"),
        (float("inf"), "Infinity"),
        ((1e9, 2.0), "1.0E9,2.0"),
    ],
)
def test_numbers_are_written_as_java_writes_them(value: object, text: str) -> None:
    assert format_value(value) == text
