"""Rules of quality for the rows of a pipeline: keep those that are good, and send the others to a dead-letter topic.

    from barnabas.spark.pipelines import quality

    rules = quality.rules({"has a user": "value.user IS NOT NULL", "stay is not negative": "value.stay_ms >= 0"})

    @dp.table
    def clicks():
        return rules.good(spark.readStream.table("clicks_topic"))

    @dp.append_flow(target="dead_letters_topic")
    def dead_letters():
        return rules.dead_letters(spark.readStream.table("clicks_topic"))

A rule is a condition in SQL. It holds for a row only if it is true: one that cannot be told, because a column is null,
is broken. Spark does not let definition files ask what columns a data frame has, so everything here is an expression
that is right for whatever columns there are.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from barnabas.base.errors import BarnabasError
from barnabas.spark.pipelines.tracking import BAD_METRIC, METRICS_PREFIX

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Action: TypeAlias = Literal["drop", "fail", "dead_letter"]

#: The rule that a row breaks whose value could not be decoded.
CAN_BE_READ: Final = "can be read"
#: The column of the names of the rules that a row breaks.
BROKEN_RULES: Final = "broken_rules"

_UNREADABLE: Final = "_bad_record"
#: Of the header `barnabas.error.class`, where the reader of the topic has no word of its own.
_RULE_CLASS: Final = "BROKEN_RULE"
_UNREADABLE_CLASS: Final = "UNREADABLE"

#: Two uses of rules in one query must not share a name.
_uses: Final = itertools.count(1)


class RuleError(BarnabasError):
    """Rules that cannot be meant."""


def rules(conditions: Mapping[str, str], *, bad_records: str | None = None) -> Rules:
    """Rules by name. `bad_records` is the column, if there is one, in which the source leaves what it cannot decode
    (`badRecords=column`): a row that has something there breaks the rule "can be read", and none of the others."""
    if not conditions and bad_records is None:
        raise RuleError("quality.rules needs at least one rule, as in {'has a user': 'value.user IS NOT NULL'}")
    for name, condition in conditions.items():
        if not isinstance(name, str) or not name.strip() or name in (CAN_BE_READ, BAD_METRIC):
            raise RuleError(f"a rule of quality cannot be called {name!r}")
        if not isinstance(condition, str) or not condition.strip():
            raise RuleError(f"the rule {name!r} must be a condition in SQL, as in 'value.user IS NOT NULL'")
    found = dict(conditions)
    if bad_records is not None:
        found = {CAN_BE_READ: f"{_quoted(bad_records)} IS NULL", **found}
    return Rules(found, bad_records or _UNREADABLE)


@dataclass(frozen=True)
class Rules:
    """Applied to data frames, streaming or not. Make one with `rules`."""

    conditions: Mapping[str, str]
    bad_records: str = _UNREADABLE

    def apply(self, rows: DataFrame, action: Action) -> DataFrame:
        """`good`, `strict` or `dead_letters`, by the name of what happens to a row that breaks a rule."""
        chosen = {"drop": self.good, "fail": self.strict, "dead_letter": self.dead_letters}.get(action)
        if chosen is None:
            raise RuleError(f"what to do with broken rows is drop, fail or dead_letter, not {action!r}")
        return chosen(rows)

    def good(self, rows: DataFrame) -> DataFrame:
        """The rows that break no rule. How many broke which is shown while the pipeline runs, and at its end."""
        return self._counted(rows).where(self._is_good())

    def strict(self, rows: DataFrame) -> DataFrame:
        """All rows; the flow fails at the first that breaks a rule, and says which row and which rules."""
        from pyspark.sql import functions as F  # noqa: N812

        problem = F.concat(
            F.lit("a row breaks the rule: "),
            F.array_join(self._broken(), ", "),
            F.lit("; the row is "),
            F.substring(F.to_json(F.struct("*")), 1, 1000),
        )
        return rows.where(F.when(self._is_good(), F.lit(True)).otherwise(F.raise_error(problem).cast("boolean")))

    def broken(self, rows: DataFrame) -> DataFrame:
        """The rows that break a rule, with the names of those in one more column, `broken_rules`."""
        return rows.where(~self._is_good()).withColumn(BROKEN_RULES, self._broken())

    def dead_letters(
        self,
        rows: DataFrame,
        *,
        topic: str | None = None,
        value: str | None = "value",
        key: str | None = "key",
        headers: str | None = None,
    ) -> DataFrame:
        """The rows that break a rule as records for a dead-letter topic, ready for a sink with `includeHeaders`.

        The key is `topic-partition-offset` of the record, so that one that is read twice can be told. The value is what
        could not be decoded as it was, else the column `value` (a structure as JSON), or with `value=None` the whole
        row as JSON. Headers are those of the dead letters of the source: `barnabas.error.class` and `.message` (the
        rules), `.topic`, `.partition`, `.offset`, `.timestamp` where there are such columns, `.key`.
        `topic` adds a column for it. `key` and `headers` name the columns that the record had them in, None if it had
        none: with them goes what the record brought.
        """
        from pyspark.sql import functions as F  # noqa: N812

        whole = F.to_json(F.struct("*"))
        brought = [] if headers is None else [F.col(headers).alias("_headers")]
        original = [] if key is None or value is None else [F.col(key).cast("binary").alias("_key")]
        # One step, so that `*` means the columns of the rows and none of ours.
        letters = rows.where(~self._is_good()).select(
            whole.alias("_json"),
            self._broken().alias("_broken"),
            self._letter(whole, value).alias("value"),
            *brought,
            *original,
        )
        json = F.col("_json")
        # Null if one of the three is: such rows come from no topic.
        place = F.concat(
            _field(json, "topic"), F.lit("-"), _field(json, "partition"), F.lit("-"), _field(json, "offset")
        )
        told = _headers(self._facts(json, has_key=bool(original)))
        if brought:
            told = F.concat(F.coalesce(F.col("_headers"), F.slice(told, 1, 0)), told)
        columns = [place.alias("key"), F.col("value"), told.alias("headers")]
        if topic is not None:
            columns.append(F.lit(topic).alias("topic"))
        return letters.select(*columns)

    def _facts(self, json: Column, *, has_key: bool) -> dict[str, Column]:
        """What is wrong with a record and where it was, by header."""
        from pyspark.sql import functions as F  # noqa: N812

        unread = F.get_json_object(json, f"$['{self.bad_records}'].error")
        facts = {
            "class": F.when(unread.isNotNull(), _UNREADABLE_CLASS).otherwise(_RULE_CLASS),
            "message": F.coalesce(unread, F.array_join(F.col("_broken"), ", ")),
            "topic": _field(json, "topic"),
            "partition": _field(json, "partition"),
            "offset": _field(json, "offset"),
            # Whatever else the rows call so: a letter must not fail for it.
            "timestamp": F.unix_millis(F.try_to_timestamp(_field(json, "timestamp"))).cast("string"),
        }
        if has_key:
            facts["key"] = F.col("_key")
        return {f"barnabas.error.{name}": value for name, value in facts.items()}

    def _letter(self, whole: Column, value: str | None) -> Column:
        """The value of a dead letter, as bytes, whatever the type of the column is, and whether or not the other
        exists: neither can be asked for, but both can be looked up in the row as JSON, which has bytes in base64."""
        from pyspark.sql import functions as F  # noqa: N812

        undecoded = F.unbase64(F.get_json_object(whole, f"$['{self.bad_records}'].value"))
        if value is None:
            return F.coalesce(undecoded, whole.cast("binary"))
        alone = F.get_json_object(F.to_json(F.struct(F.col(value).alias("v"))), "$.v")
        as_is = F.when(F.typeof(value) == "binary", F.unbase64(alone)).otherwise(alone.cast("binary"))
        return F.coalesce(undecoded, as_is)

    def _counted(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        counts = [
            F.count_if(~self._is_good()).alias(BAD_METRIC),
            *(F.count_if(is_broken).alias(name) for name, is_broken in self._each_broken().items()),
        ]
        return rows.observe(f"{METRICS_PREFIX}{next(_uses)}", *counts)

    def _is_good(self) -> Column:
        first, *others = [_holds(condition) for condition in self.conditions.values()]
        for other in others:
            first = first & other
        return first

    def _broken(self) -> Column:
        from pyspark.sql import functions as F  # noqa: N812

        names = [F.when(is_broken, F.lit(name)) for name, is_broken in self._each_broken().items()]
        return F.array_compact(F.array(*names))

    def _each_broken(self) -> dict[str, Column]:
        """By rule, whether a row breaks it. One that could not be read has no value, and says nothing of the others."""
        broken = {name: ~_holds(condition) for name, condition in self.conditions.items()}
        unread = broken.get(CAN_BE_READ)
        if unread is None:
            return broken
        return {name: each if name == CAN_BE_READ else ~unread & each for name, each in broken.items()}


def _holds(condition: str) -> Column:
    """Never null."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.coalesce(F.expr(condition), F.lit(False))


def _field(json: Column, name: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return F.get_json_object(json, f"$.{name}")


def _headers(named: Mapping[str, Column]) -> Column:
    """Those that have a value, as the sink wants them."""
    from pyspark.sql import functions as F  # noqa: N812

    each = [
        F.when(value.isNotNull(), F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value")))
        for name, value in named.items()
    ]
    return F.array_compact(F.array(*each))


def _quoted(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"
