"""SELECT: from its parts to the plan, one after the other as SQL defines them."""

from collections.abc import Sequence

from sqlglot import exp

from penstock.streams.sql.from_clause import Planned, common_tables, plan_body
from penstock.streams.sql.grouping import Grouping, has_aggregate, is_window, nulls_first
from penstock.streams.sql.joining import conjuncts, filtered
from penstock.streams.sql.plan import (
    Col,
    Expr,
    Order,
    Plan,
    Project,
    SetOperation,
    Top,
    Union,
    columns_in,
    distinct,
    is_bound,
    narrowed,
    widened,
)
from penstock.streams.sql.scope import Scope
from penstock.streams.sql.subqueries import Asking, Selected


class QueryPlanner:
    """Plans queries; `notes` says what of them has no meaning in a view."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def query(self, query: exp.Query, scope: Scope) -> Planned:
        scope.common = common_tables(query, scope)
        if isinstance(query, exp.Subquery):
            inner = query.unnest()
            assert isinstance(inner, exp.Query)
            return self.query(inner, scope)
        if isinstance(query, exp.SetOperation):
            return self._set_operation(query, scope)
        assert isinstance(query, exp.Select)
        return self._select(query, scope)

    def rows(self, query: exp.Query, scope: Scope) -> Selected:
        """A query inside of a condition or a value, which may compare with the one around it."""
        scope.common = common_tables(query, scope)
        if isinstance(query, exp.Select) and not {"limit", "offset"} & _given(query):
            return self._rows(query, scope)[0]
        planned = self.query(query, scope)
        limit = query.args.get("limit")
        outputs = [(name, col.ref()) for name, col in planned.columns]
        one = limit is not None and limit.expression.name == "1"
        return Selected(planned.plan, list(outputs), [], single=one)

    def _set_operation(self, query: exp.SetOperation, scope: Scope) -> Planned:
        left, right = (
            self.query(side, Scope(scope.context, common=scope.common))
            for side in (query.left, query.right)
        )
        if len(left.columns) != len(right.columns):
            raise scope.context.source.refusal(
                f"one side has {len(left.columns)} columns, the other {len(right.columns)}",
                query.right,
                "both need the same, in the same order",
            )
        if query.args.get("by_name"):
            raise scope.context.source.refusal(
                "columns are matched by their place", query, "write them in one order", "BY"
            )
        alias = scope.context.alias(query.key)
        names = [name for name, _ in left.columns]
        columns = tuple(Col(alias, name) for name in _unique(names))
        left_rows, right_rows = (
            narrowed(each.plan, tuple(col for _, col in each.columns)) for each in (left, right)
        )
        every = query.args.get("distinct") is False
        plan: Plan
        if isinstance(query, exp.Union):
            plan = Union(left_rows, right_rows, columns)
            plan = plan if every else distinct(plan)
        else:
            kind = "except" if isinstance(query, exp.Except) else "intersect"
            plan = SetOperation(left_rows, right_rows, columns, kind, every)
        outputs = list(zip(names, columns, strict=True))
        return Planned(self._ordered(query, plan, outputs, scope), outputs)

    def _select(self, select: exp.Select, scope: Scope) -> Planned:
        found, grouping = self._rows(select, scope)
        if found.outer:
            raise scope.context.source.refusal(
                "this compares with a query around it, which is not known here",
                found.outer[0],
                "write a JOIN, or leave LIMIT out",
            )
        alias = scope.context.alias("select")
        names = [name for name, _ in found.outputs]
        columns = [Col(alias, name) for name in _unique(names)]
        outputs = list(zip(names, columns, strict=True))
        computed = tuple(zip(columns, (value for _, value in found.outputs), strict=True))
        if select.args.get("distinct"):
            if select.args["distinct"].args.get("on"):
                raise scope.context.source.refusal(
                    "DISTINCT ON takes any row",
                    select,
                    "ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...) = 1 says which",
                    "DISTINCT",
                )
            plan = distinct(Project(found.plan, computed))
        else:
            plan = widened(found.plan, *computed)
        plan = self._ordered(select, plan, outputs, scope, grouping, computed)
        return Planned(narrowed(plan, tuple(columns)), outputs)

    def _rows(self, select: exp.Select, scope: Scope) -> tuple[Selected, Grouping | None]:
        context = scope.context
        body = plan_body(select, scope, self.query)
        plan, outer = body.plan, body.outer
        asking = Asking(scope, self.rows)
        for condition in body.asked:
            plan = asking.where(plan, condition)
        written = _outputs(select, scope)
        group, having = select.args.get("group"), select.args.get("having")
        # What is grouped by window(at, ...) is called window.
        aliases = {name.lower(): value for name, value in written if not value.is_star}
        for each in group.expressions if group is not None else ():
            if is_window(each):
                aliases.setdefault(each.name.lower(), each)
        outputs = [(name, scope.bind(_meant(value, aliases, scope))) for name, value in written]
        if qualify := select.args.get("qualify"):
            outputs.append(("", scope.bind(_meant(qualify.this, aliases, scope))))
        conditions = []
        if having is not None:
            conditions = [scope.bind(_meant(having.this, aliases, scope))]
        grouped = group is not None or any(map(has_aggregate, [value for _, value in outputs]))
        grouping, counts = None, frozenset[Col]()
        if grouped or conditions:
            keys = [
                scope.bind(_meant(each, aliases, scope)) for each in _keys(group, written, scope)
            ]
            if outer and group is None and conditions:
                raise context.source.refusal(
                    "HAVING of a single value cannot compare with the query around it",
                    having,
                    "write CASE WHEN ... THEN ... END around the value",
                    "HAVING",
                )
            pairs = [self._compared(plan, each, scope) for each in outer]
            grouping = Grouping(context, plan, [*(inner for inner, _ in pairs), *keys])
            outputs = [(name, grouping.rewritten(value)) for name, value in outputs]
            conditions = [grouping.rewritten(each) for each in conditions]
            outer = [
                exp.EQ(this=beyond, expression=grouping.rewritten(inner)) for inner, beyond in pairs
            ]
            for order in _order(select):
                if not isinstance(order.this, exp.Literal):
                    grouping.rewritten(scope.bind(_meant(order.this, aliases, scope)))
            plan, counts = grouping.plan, frozenset(grouping.counts)
        for condition in conditions:
            plan = asking.where(plan, condition)
        plan, values = self._ranked(plan, [value for _, value in outputs], scope)
        for number, value in enumerate(values):
            plan, values[number] = asking.value(plan, value)
            scope.check_covered(values[number], plan.columns, select)
        if qualify:
            plan = filtered(plan, conjuncts(values.pop()))
        outputs = list(zip((name for name, _ in outputs), values, strict=False))
        single = grouped and group is None
        always = single and not conditions and not outer
        return Selected(plan, outputs, outer, counts, single, always), grouping

    def _compared(self, plan: Plan, condition: Expr, scope: Scope) -> tuple[Expr, Expr]:
        """The side of an equality that is of these rows, and the one of the query around."""
        if isinstance(condition, exp.EQ):
            own, sides = set(plan.columns), (condition.left.unnest(), condition.right.unnest())
            for one, other in (sides, sides[::-1]):
                mine = set(columns_in(one))
                if mine and mine <= own and not own & set(columns_in(other)):
                    return one, other
        raise scope.context.source.refusal(
            "an aggregate for each row around it is found by equality alone",
            condition,
            "join the tables first, and aggregate then",
        )

    def _ranked(self, plan: Plan, values: Sequence[Expr], scope: Scope) -> tuple[Plan, list[Expr]]:
        found = list(values)
        for number, value in enumerate(found):
            for window in list(value.find_all(exp.Window)):
                if not isinstance(window.this, exp.RowNumber) or window.args.get("spec"):
                    raise scope.context.source.refusal(
                        "of functions OVER other rows, ROW_NUMBER alone is known",
                        window,
                        "ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...) <= 10 takes the first "
                        "ten; for the rest, join with a GROUP BY",
                        "OVER",
                    )
                plan, rank = self._numbered(plan, window, scope)
                if window is value:
                    found[number] = rank
                else:
                    window.replace(rank)
        return plan, found

    def _numbered(self, plan: Plan, window: exp.Window, scope: Scope) -> tuple[Plan, Expr]:
        alias = scope.context.alias("ranks")
        computed: list[tuple[Col, Expr]] = []

        def column(value: Expr) -> Col:
            if isinstance(value, exp.Column):
                return Col(value.table, value.name)
            computed.append((Col(alias, f"c{len(computed) + 1}"), value))
            return computed[-1][0]

        by = tuple(column(each) for each in window.args.get("partition_by") or ())
        order = window.args.get("order")
        orders = tuple(
            Order(column(each.this), bool(each.args.get("desc")), nulls_first(each))
            for each in (order.expressions if order is not None else ())
        )
        for value in computed:
            scope.check_covered(value[1], plan.columns, window)
        rank = Col(alias, "number")
        return Top(widened(plan, *computed), by, orders, None, rank), rank.ref()

    def _ordered(
        self,
        query: exp.Query,
        plan: Plan,
        outputs: list[tuple[str, Col]],
        scope: Scope,
        grouping: Grouping | None = None,
        computed: Sequence[tuple[Col, Expr]] = (),
    ) -> Plan:
        """The first rows, if there is a LIMIT; `plan` has the outputs among its columns."""
        limit, offset = query.args.get("limit"), query.args.get("offset")
        if limit is None and offset is None:
            if query.args.get("order"):
                self.notes.append(
                    "ORDER BY without LIMIT is left out: a table has no order; order what is read "
                    "from the view, or array_agg(... ORDER BY ...)"
                )
            return plan
        count, skip = _number(limit), 0 if offset is None else _number(offset)
        if count is None or skip is None or count < 1:
            raise scope.context.source.refusal(
                "the first rows are so many, a number", limit or offset, "LIMIT 10", "LIMIT",
                "OFFSET",
            )  # fmt: skip
        by_name = {name.lower(): col for name, col in outputs}
        orders: list[Order] = []
        more: list[tuple[Col, Expr]] = []
        alias = scope.context.alias("order")
        for ordered in _order(query):
            value = ordered.this
            if isinstance(value, exp.Column) and not value.table and value.name.lower() in by_name:
                column = by_name[value.name.lower()]
            elif isinstance(value, exp.Literal) and value.name.isdigit():
                column = outputs[_place(value, len(outputs), scope) - 1][1]
            else:
                value = self._order_value(value, outputs, scope, grouping)
                known = [col for col, output in computed if output == value]
                column = known[0] if known else Col(alias, f"c{len(more) + 1}")
                if not known:
                    scope.check_covered(value, plan.columns, ordered)
                    more.append((column, value))
            orders.append(Order(column, bool(ordered.args.get("desc")), nulls_first(ordered)))
        return Top(widened(plan, *more), (), tuple(orders), count, skip=skip)

    def _order_value(
        self,
        value: Expr,
        outputs: list[tuple[str, Col]],
        scope: Scope,
        grouping: Grouping | None,
    ) -> Expr:
        by_name = {name.lower(): col.ref() for name, col in outputs}

        def visit(each: Expr) -> Expr:
            if isinstance(each, exp.Column) and not each.table and each.name.lower() in by_name:
                return by_name[each.name.lower()].copy()
            return each

        known = {col.table for _, col in outputs}
        replaced = value.copy().transform(visit)
        columns = list(replaced.find_all(exp.Column))
        if columns and all(each.table in known for each in columns):
            return replaced
        bound = scope.bind(value)
        return bound if grouping is None else grouping.rewritten(bound)


def _given(query: exp.Query) -> set[str]:
    return {name for name, value in query.args.items() if value}


def _order(query: exp.Query) -> list[Expr]:
    order = query.args.get("order")
    return order.expressions if order is not None and query.args.get("limit") else []


def _number(clause: Expr | None) -> int | None:
    value = None if clause is None else clause.expression
    if not isinstance(clause, exp.Limit | exp.Offset) or not isinstance(value, exp.Literal):
        return None
    return int(value.name) if value.name.isdigit() else None


def _place(value: Expr, most: int, scope: Scope) -> int:
    place = int(value.name)
    if not 1 <= place <= most:
        raise scope.context.source.refusal(
            f"there is no column {place} of {most}", value, "name the column"
        )
    return place


def _outputs(select: exp.Select, scope: Scope) -> list[tuple[str, Expr]]:
    """What is selected, under its name; a function without one has its own."""
    found: list[tuple[str, Expr]] = []
    for number, each in enumerate(select.expressions, 1):
        if each.is_star and isinstance(each, exp.Star | exp.Column):
            found.extend(scope.expand(each))
        elif isinstance(each, exp.Alias):
            found.append((each.alias, each.this))
        elif isinstance(each, exp.Aliases):
            raise scope.context.source.refusal(
                "one value has one name", each, "select the fields of a struct one by one"
            )
        elif isinstance(each, exp.Column | exp.Dot):
            found.append((each.name, each))
        else:
            found.append((_free(_name(each, number), found), each))
    return found


def _free(name: str, taken: list[tuple[str, Expr]]) -> str:
    """Two values without a name do not have the same."""
    names = [each.lower() for each, _ in taken]
    return _unique([*names, name])[-1] if name.lower() in names else name


def _name(value: Expr, number: int) -> str:
    value = value.unnest()
    if isinstance(value, exp.Anonymous):
        return value.name.lower()
    if isinstance(value, exp.Column | exp.Dot):
        return value.name
    if isinstance(value, exp.Cast):
        return _name(value.this, number)
    if isinstance(value, exp.Filter | exp.Window):
        return _name(value.this, number)
    if isinstance(value, exp.Func) and not isinstance(value, exp.Case | exp.Connector):
        return value.sql_name().lower()
    return f"column{number}"


def _keys(group: Expr | None, written: list[tuple[str, Expr]], scope: Scope) -> list[Expr]:
    if group is None:
        return []
    if group.args.get("all"):
        return [value for _, value in written if not has_aggregate(value)]
    return [
        written[_place(each, len(written), scope) - 1][1]
        if isinstance(each, exp.Literal) and not each.is_string
        else each
        for each in group.expressions
    ]


def _meant(value: Expr, aliases: dict[str, Expr], scope: Scope) -> Expr:
    """With what is selected in the place of its name, where no table has such a column."""
    tables = {each.name.lower() for each in scope.relations}
    names = {name.lower() for name in scope.names()}

    def visit(each: Expr) -> Expr:
        if isinstance(each, exp.Query):
            return each.copy()
        if not isinstance(each, exp.Column) or is_bound(each) or isinstance(each.this, exp.Star):
            return each
        first, *rest = [part.name.lower() for part in each.parts]
        if first in names or (rest and first in tables) or first not in aliases:
            return each
        found = aliases[first].copy()
        if each is not value and isinstance(found, exp.Binary | exp.Unary | exp.Between | exp.In):
            found = exp.paren(found)
        for name in rest:
            found = exp.Dot(this=found, expression=exp.to_identifier(name))
        return found

    value = value.copy()
    return value.transform(visit, copy=False)


def _unique(names: Sequence[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        wanted, number = name.lower(), 1
        while wanted in found:
            number += 1
            wanted = f"{name.lower()}{number}"
        found.append(wanted)
    return found
