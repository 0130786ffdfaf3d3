"""A view: its text as a plan, without Spark."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from penstock.streams.sql.explain import picture
from penstock.streams.sql.keys import key_of
from penstock.streams.sql.parse import Source
from penstock.streams.sql.plan import Col, Plan, Project, Top
from penstock.streams.sql.refusals import refuse_unsupported
from penstock.streams.sql.rewriting import pruned
from penstock.streams.sql.scope import Context, Scope, Table
from penstock.streams.sql.select import QueryPlanner
from penstock.streams.sql.table_functions import table_function
from penstock.streams.sql.tops import bounded, early


@dataclass(frozen=True)
class View:
    """`key` are the columns that identify a row, () if none are known or there is but one row, as
    `is_single` says; `notes` what of the text has no meaning in a view."""

    plan: Plan
    names: tuple[str, ...]
    key: tuple[str, ...]
    notes: tuple[str, ...]
    is_single: bool = False


def tables_of(sql: str) -> tuple[str, ...]:
    """The names of what a query reads, in the order in which they stand there.

    Raises InvalidSql for what is no query, or none that can be kept up to date.
    """
    source = Source(sql)
    query = source.parse()
    refuse_unsupported(source, query)
    names = []
    for table in query.find_all(exp.Table):
        called = table_function(table)
        parts = table.parts if called is None else called.table.parts
        name = ".".join(part.name for part in parts)
        if name and not _is_common(table, name):
            names.append((parts[0].meta.get("start", 0), name))
    return tuple({name.lower(): name for _, name in sorted(names, reverse=True)}.values())[::-1]


def statement(sql: str) -> str:
    """The query in one form, however it is laid out."""
    return Source(sql).parse().sql(dialect="spark", comments=False)


def _is_common(table: exp.Table, name: str) -> bool:
    """Whether WITH names it, in a query around it and before it."""
    node: exp.Expr | None = table
    while node is not None:
        with_ = node.args.get("with_")
        own = table.find_ancestor(exp.CTE)
        for each in with_.expressions if with_ is not None else ():
            if each is own:
                break
            if each.alias.lower() == name.lower():
                return True
        node = node.parent
    return False


def plan_view(sql: str, tables: Mapping[str, Table]) -> View:
    """Raises InvalidSql, with the place in the text and what to write instead."""
    source = Source(sql)
    query = source.parse()
    refuse_unsupported(source, query)
    context = Context(source, tables)
    planner = QueryPlanner()
    planned = planner.query(query, Scope(context))
    names = [name for name, _ in planned.columns]
    for name in names:
        if [each.lower() for each in names].count(name.lower()) > 1:
            raise source.refusal(
                f"the view would have the column {name!r} twice", None, "name one: ... AS other"
            )
        if name.startswith("_"):
            raise source.refusal(
                f"{name!r} cannot be a column of the view",
                None,
                "names that begin with _ are taken",
            )
    outputs = tuple((Col("", name), col.ref()) for name, col in planned.columns)
    plan = bounded(Project(planned.plan, outputs))
    _check_limits(source, plan)
    plan = pruned(early(plan), {col for col, _ in outputs})
    found = key_of(plan, tables)
    key = tuple(col.name for col in found or ())
    return View(plan, tuple(names), key, tuple(planner.notes), is_single=found == ())


def _check_limits(source: Source, plan: Plan) -> None:
    if isinstance(plan, Top) and plan.limit is None:
        raise source.refusal(
            "a number for every row changes with each row before it",
            None,
            "take the first ones: SELECT * FROM (SELECT ..., ROW_NUMBER() OVER (...) AS n ...) "
            "WHERE n <= 10",
            "ROW_NUMBER",
        )
    for each in plan.inputs:
        _check_limits(source, each)


def explain(view: View, about: Callable[[Plan], str] = lambda plan: "") -> str:
    """The plan as a picture in text, and what has no meaning in a view.

    `about` adds to an operator what else is known of it, such as how much state it has.
    """
    return "\n".join([picture(view.plan, about), *(f"note: {each}" for each in view.notes)])
