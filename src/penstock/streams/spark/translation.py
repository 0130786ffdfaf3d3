"""What a user does with the rows of a leaf, without Spark where that gives the same rows.

    translated(orders.filter("amount > 100").select("id", (col("amount") * 2).alias("twice")))
    # [Translated(0, Selection().where([">", ["column", "amount"], ...]).chosen({...}))]

Filters come before the columns that are computed, as Spark's optimizer has it: a column that would
be refused in a row counts only where the row is kept, and somebody needs the column.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pyspark.sql import DataFrame

from penstock.streams.algebra.rows.selection import COLUMN, Expression, Selection
from penstock.streams.spark.catalyst import (
    ExprId,
    Tree,
    Typed,
    Untranslatable,
    analyzed,
    references,
    type_of,
    typed,
)
from penstock.streams.spark.leaves import LEAF

_SAME_ROWS = {"SubqueryAlias", "View", "ResolvedHint"}
_ZONE = "spark.sql.session.timeZone"


class Translated(NamedTuple):
    leaf: int
    selection: Selection


def translated(df: DataFrame) -> list[Translated] | None:
    """What the rows are made of, all of them together; None if only Spark knows.

    Expressions over the columns of leaves are by name; a column of a leaf keeps its name and type.
    """
    if df.sparkSession.conf.get(_ZONE) != "UTC":
        return None
    try:
        return [Translated(each.leaf, each.selection()) for each in _branches(analyzed(df))]
    except (Untranslatable, RecursionError):
        return None


class _Output(NamedTuple):
    """A column of a plan, as an expression over the columns that the steps so far have given."""

    expr_id: ExprId
    name: str
    value: Typed


@dataclass(frozen=True)
class _Branch:
    """The rows of one leaf, on their way through a plan."""

    leaf: int
    names: tuple[str, ...]  # the columns that the steps so far have given
    outputs: tuple[_Output, ...]
    steps: tuple[Any, ...] = ()

    def filtered(self, condition: Tree) -> "_Branch":
        found = typed(condition, self._by_id())
        if found.kind != "boolean":
            raise Untranslatable
        conjuncts = list(_conjuncts(found.expression))
        step = conjuncts[0] if len(conjuncts) == 1 else ["and", *conjuncts]
        return replace(self, steps=(*self.steps, step))

    def projected(self, columns: Sequence[Tree]) -> "_Branch":
        used = Counter(each for column in columns for each in references(column))
        computed = {each.expr_id for each in self.outputs if each.value.expression[0] != COLUMN}
        if any(used[each] > 1 for each in computed):  # it shall be computed once
            return self._materialized().projected(columns)
        by_id = self._by_id()
        return replace(self, outputs=tuple(_projected(column, by_id) for column in columns))

    def selection(self) -> Selection:
        steps = self.steps
        names = tuple(each.name for each in self.outputs)
        if len(set(names)) < len(names):
            raise Untranslatable
        choice = {each.name: _plain(each.value.expression) for each in self.outputs}
        if names != self.names or any(new != old for new, old in choice.items()):
            steps = (*steps, choice)
        return Selection(steps).pruned()

    def _materialized(self) -> "_Branch":
        """With a step that computes the columns. Their names are the same in every process, as
        the state of operators is known by such steps."""
        counted: Counter[str] = Counter()
        choice: dict[str, str | Expression] = {}
        outputs = []
        for each in self.outputs:
            name = f"{each.name}#{counted[each.name]}" if counted[each.name] else each.name
            counted[each.name] += 1
            if name in choice:
                raise Untranslatable
            choice[name] = _plain(each.value.expression)
            outputs.append(each._replace(value=Typed([COLUMN, name], each.value.kind)))
        return replace(
            self, names=tuple(choice), outputs=tuple(outputs), steps=(*self.steps, choice)
        )

    def _by_id(self) -> dict[ExprId, Typed]:
        return {each.expr_id: each.value for each in self.outputs}


def _branches(plan: Tree) -> list[_Branch]:
    if not plan.children:
        return [_leaf(plan)]
    if plan.name == "Union" and not plan.fields["byName"]:
        return _united([_branches(each) for each in plan.children])
    if len(plan.children) > 1:
        raise Untranslatable
    if plan.name == "Filter":
        condition = plan.expression("condition")
        return [each.filtered(condition) for each in _branches(plan.children[0])]
    if plan.name == "Project":
        columns = plan.expressions("projectList")
        return [each.projected(columns) for each in _branches(plan.children[0])]
    if plan.name in _SAME_ROWS:
        return _branches(plan.children[0])
    raise Untranslatable


def _leaf(plan: Tree) -> _Branch:
    if not plan.fields.get("output"):
        raise Untranslatable
    metadata = plan.java.output().head().metadata()
    if not metadata.contains(LEAF):
        raise Untranslatable
    outputs = tuple(
        _Output(each.expr_id, name, Typed([COLUMN, name], type_of(each.fields["dataType"])))
        for each in plan.expressions("output")
        if isinstance(name := each.fields["name"], str)
    )
    names = tuple(each.name for each in outputs)
    if len(set(names)) < len(names):
        raise Untranslatable
    return _Branch(int(metadata.getLong(LEAF)), names, outputs)


def _united(children: Sequence[Sequence[_Branch]]) -> list[_Branch]:
    """With the columns of the first one, by their places."""
    first = children[0][0].outputs
    found = []
    for branch in (each for child in children for each in child):
        pairs = list(zip(first, branch.outputs, strict=True))
        if any(one.value.kind != other.value.kind for one, other in pairs):
            raise Untranslatable
        outputs = tuple(one._replace(value=other.value) for one, other in pairs)
        found.append(replace(branch, outputs=outputs))
    return found


def _projected(column: Tree, by_id: dict[ExprId, Typed]) -> _Output:
    if column.name not in ("Alias", "AttributeReference"):
        raise Untranslatable
    value = typed(column.children[0] if column.name == "Alias" else column, by_id)
    if value.kind == "void":
        raise Untranslatable
    return _Output(column.expr_id, str(column.fields["name"]), value)


def _conjuncts(condition: Expression) -> Iterator[Expression]:
    if condition[0] == "and":
        for each in condition[1:]:
            yield from _conjuncts(each)
    else:
        yield condition


def _plain(expression: Expression) -> str | Expression:
    return str(expression[1]) if expression[0] == COLUMN else expression
