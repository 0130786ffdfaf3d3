"""FROM and WHERE: the tables that a query names, joined, and the rows of them that it is about."""

from collections.abc import Callable
from typing import NamedTuple

from sqlglot import exp

from penstock.streams.sql.joining import conjuncts, inner_joined, outer_joined
from penstock.streams.sql.parse import nearest
from penstock.streams.sql.plan import Col, Expr, Plan, Project, Scan, Span, Windows, columns_in
from penstock.streams.sql.scope import CommonTable, Relation, Scope
from penstock.streams.sql.table_functions import TableFunction, table_function


class Planned(NamedTuple):
    """A query as a plan; its columns with their names, in order."""

    plan: Plan
    columns: list[tuple[str, Col]]


PlanQuery = Callable[[exp.Query, Scope], Planned]


class Body(NamedTuple):
    """Rows that a SELECT is about. Conditions that are `asked` of it have queries in them, those
    that are `outer` compare with a query around it."""

    plan: Plan
    asked: list[Expr]
    outer: list[Expr]


def plan_body(select: exp.Select, scope: Scope, plan_query: PlanQuery) -> Body:
    """Fills the scope with what FROM names."""
    group = [_source(select.args["from_"].this, scope, plan_query)]
    conditions: list[Expr] = []
    joins = select.args.get("joins") or []
    where = select.args.get("where")
    # A condition on rows that an outer join keeps can be asked before it, but what it means is
    # clear only when all tables are known.
    steps = []
    for join in joins:
        plan, how = _source(join.this, scope, plan_query), _how(join)
        steps.append((plan, how, _on(join, scope)))
        if how in ("semi", "anti"):
            scope.relations.pop()
    asked, local, outer = _sorted_out(where, scope)
    for plan, how, on in steps:
        if how == "inner":
            group.append(plan)
            conditions += on
            continue
        ready = [each for each in local if how in ("left", "semi", "anti") and _by(group, each)]
        local = [each for each in local if each not in ready]
        kept = inner_joined(scope.context, group, [*conditions, *ready])
        group, conditions = [outer_joined(scope.context, kept, plan, how, on)], []
    return Body(inner_joined(scope.context, group, [*conditions, *local]), asked, outer)


def _by(group: list[Plan], condition: Expr) -> bool:
    return set(columns_in(condition)) <= {col for plan in group for col in plan.columns}


def _how(join: exp.Join) -> str:
    kind, side = join.kind.lower(), join.side.lower()
    if kind in ("semi", "anti"):
        return kind
    return side or "inner"


def _on(join: exp.Join, scope: Scope) -> list[Expr]:
    if using := join.args.get("using"):
        return [_using(join, each.name, scope) for each in using]
    on = join.args.get("on")
    if on is None:
        return []
    if on.find(exp.Query):
        raise scope.context.source.refusal(
            "a query inside of ON is not known", on, "ask it in WHERE, or join with it", "ON"
        )
    condition = scope.bind(on)
    columns = tuple(col for relation in scope.relations for _, col in relation.columns)
    scope.check_covered(condition, columns, on)
    return conjuncts(condition)


def _using(join: exp.Join, name: str, scope: Scope) -> Expr:
    *before, right = scope.relations
    column = right.find(name)
    left: Expr | None = scope.merged.get(name.lower())
    if left is None:
        found = [col for each in before if (col := each.find(name)) is not None]
        left = found[0].ref() if len(found) == 1 else None
    if column is None or left is None:
        raise scope.context.source.refusal(
            f"both tables of USING need one column {name!r}", join, "write ON a.x = b.y", "USING"
        )
    how = _how(join)
    if how == "full":
        scope.merged[name.lower()] = exp.Coalesce(this=left.copy(), expressions=[column.ref()])
    elif how == "right":
        scope.merged[name.lower()] = column.ref()
    else:
        scope.merged[name.lower()] = left.copy()
    scope.hidden.add(column)
    return exp.EQ(this=left.copy(), expression=column.ref())


def _sorted_out(where: Expr | None, scope: Scope) -> tuple[list[Expr], list[Expr], list[Expr]]:
    asked, local, outer = [], [], []
    own = {col for relation in scope.relations for _, col in relation.columns}
    for condition in conjuncts(scope.bind(where.this) if where is not None else None):
        if condition.find(exp.Query):
            asked.append(condition)
        elif set(columns_in(condition)) <= own:
            local.append(condition)
        else:
            outer.append(condition)
    return asked, local, outer


def _source(node: Expr, scope: Scope, plan_query: PlanQuery) -> Plan:
    """The plan of one table; what it is called is in the scope then."""
    context = scope.context
    renamed = [each.name for each in node.args["alias"].columns] if node.args.get("alias") else []
    if isinstance(node, exp.Subquery):
        name = node.alias or "subquery"
        query = node.unnest()
        assert isinstance(query, exp.Query)
        found = plan_query(query, Scope(context, common=scope.common))
        return _named(node, name, found, renamed, scope)
    if not isinstance(node, exp.Table):
        raise context.source.refusal(
            "rows written in a query never change, so nothing would follow them",
            node,
            "let them be a table, or write CASE",
            "VALUES",
        )
    called = table_function(node)
    if called is not None:
        return _windowed(node, called, scope, plan_query)
    if not isinstance(node.this, exp.Identifier):
        raise context.source.refusal(
            "of functions that make tables, TUMBLE and HOP are known",
            node,
            "TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL '10' MINUTE); sessions are "
            "GROUP BY session_window(at, '5 minutes')",
        )
    name = node.alias or node.name
    common = scope.common.get(node.name.lower()) if not node.db else None
    if common is not None:
        found = plan_query(common.query.copy(), Scope(context, common=common.scope.common))
        return _named(node, name, found, renamed or list(common.names), scope)
    full = ".".join(part.name for part in node.parts)
    if full.lower() not in context.tables:
        names = [name for name, _ in context.tables.values()]
        raise context.source.refusal(f"there is no {full!r}", node, nearest(full, names))
    table, about = context.tables[full.lower()]
    alias = context.alias(name)
    scan = Scan(table, alias, about.columns)
    columns = _renamed(list(zip(about.columns, scan.columns, strict=True)), renamed, node, scope)
    scope.add(Relation(name, columns), node)
    return scan


def _windowed(node: exp.Table, called: TableFunction, scope: Scope, plan_query: PlanQuery) -> Plan:
    """A table with the windows that its rows are in, as window_start and window_end."""
    inner = Scope(scope.context, common=scope.common)
    rows = _source(called.table, inner, plan_query)
    (relation,) = inner.relations
    time = inner.bind(called.time)
    assert isinstance(time, exp.Column)
    name = node.alias or called.table.name
    alias = scope.context.alias(name)
    window = Col(alias, "window")
    plan = Windows(rows, Span(window, Col(time.table, time.name), called.size, called.step))
    edges = [(Col(alias, f"window_{edge}"), edge) for edge in ("start", "end")]
    passed = [(column, column.ref()) for _, column in relation.columns]
    outputs = [
        (column, exp.Dot(this=window.ref(), expression=exp.to_identifier(edge)))
        for column, edge in edges
    ]
    added = [(column.name, column) for column, _ in edges]
    scope.add(Relation(name, [*relation.columns, *added]), node)
    return Project(plan, (*passed, *outputs))


def _named(node: Expr, name: str, found: Planned, renamed: list[str], scope: Scope) -> Plan:
    """A query as a table of its own: its columns under other names."""
    columns = _renamed(found.columns, renamed, node, scope)
    names = [written.lower() for written, _ in columns]
    for written in names:
        if names.count(written) > 1:
            raise scope.context.source.refusal(
                f"{name!r} has the column {written!r} twice", node, "name one of them: ... AS other"
            )
    alias = scope.context.alias(name)
    outputs = [(written, Col(alias, written.lower()), col) for written, col in columns]
    scope.add(Relation(name, [(written, new) for written, new, _ in outputs]), node)
    return Project(found.plan, tuple((new, col.ref()) for _, new, col in outputs))


def _renamed(
    columns: list[tuple[str, Col]], names: list[str], node: Expr, scope: Scope
) -> list[tuple[str, Col]]:
    if names and len(names) != len(columns):
        raise scope.context.source.refusal(
            f"{len(names)} names for {len(columns)} columns", node, "name each of them"
        )
    if names:
        columns = [(name, col) for name, (_, col) in zip(names, columns, strict=True)]
    return columns


def common_tables(query: exp.Query, scope: Scope) -> dict[str, CommonTable]:
    """Those that WITH names, each of which knows the ones before it."""
    found = dict(scope.common)
    with_ = query.args.get("with_")
    for each in with_.expressions if with_ is not None else ():
        seen = Scope(scope.context, common=dict(found))
        names = tuple(column.name for column in each.args["alias"].columns)
        found[each.alias.lower()] = CommonTable(each.this, names, seen)
    return found
