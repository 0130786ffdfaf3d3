"""Which columns identify a row of a plan."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from sqlglot import exp

from penstock.streams.sql.plan import (
    Aggregate,
    Col,
    Expr,
    Filter,
    Join,
    Plan,
    Project,
    Scan,
    SetOperation,
    Span,
    Top,
    Union,
    Windows,
)
from penstock.streams.sql.scope import Table

Key = tuple[frozenset[Col], ...]  # columns that name a row; any one of a set will do


def key_of(plan: Plan, tables: Mapping[str, Table]) -> tuple[Col, ...] | None:
    """None where none are known; of a plan that has one row, ()."""
    key = _key(plan, tables)
    if key is None:
        return None
    return tuple(next(col for col in plan.columns if col in each) for each in key)


def _key(plan: Plan, tables: Mapping[str, Table]) -> Key | None:
    match plan:
        case Scan():
            found = [Col(plan.alias, name) for name in tables[plan.table].key]
            known = found and set(found) <= set(plan.columns)
            return _each(found) if known else None
        case Filter():
            return _key(plan.input, tables)
        case Top() if plan.limit == 1:
            return _each(plan.by)
        case Top():
            ranked = None if plan.rank is None else _each([*plan.by, plan.rank])
            return ranked or _key(plan.input, tables)
        case Project():
            return _passed(plan, _key(plan.input, tables))
        case Aggregate():
            return _each([*([plan.span.column] if plan.span else []), *plan.by])
        case Join():
            return _joined(plan, tables)
        case SetOperation():
            return None if plan.every else _each(plan.columns)
        case Windows():
            key = _key(plan.input, tables)
            return None if key is None else (*key, frozenset([plan.span.column]))
        case Union():
            return None


def _each(columns: Sequence[Col]) -> Key:
    return tuple(frozenset([col]) for col in columns)


def _passed(plan: Project, key: Key | None) -> Key | None:
    names: dict[Col, set[Col]] = defaultdict(set)
    windows = _windows(plan.input)
    for column, value in plan.outputs:
        if isinstance(value, exp.Dot) and value.name == "start" and _col(value.this) in windows:
            value = value.this
        if (col := _col(value)) is not None:
            names[col].add(column)
    found = [frozenset(new for col in each for new in names[col]) for each in key or ()]
    return tuple(found) if key is not None and all(found) else None


def _col(value: Expr) -> Col | None:
    return Col(value.table, value.name) if isinstance(value, exp.Column) else None


def _windows(plan: Plan) -> dict[Col, Span]:
    """Columns that are windows, each of which its start names as well.

    That of a session does so only next to what the session is of, so no longer when rows have
    been grouped anew.
    """
    found = {col: span for each in plan.inputs for col, span in _windows(each).items()}
    if isinstance(plan, Project):
        passed = ((column, _col(value)) for column, value in plan.outputs)
        return {column: found[col] for column, col in passed if col in found}
    if isinstance(plan, Aggregate | Top):
        found = {col: span for col, span in found.items() if not span.session}
    if isinstance(plan, Aggregate | Windows) and plan.span is not None:
        found[plan.span.column] = plan.span
    return {col: span for col, span in found.items() if col in plan.columns}


def _joined(plan: Join, tables: Mapping[str, Table]) -> Key | None:
    left = _key(plan.left, tables)
    if plan.how in ("semi", "anti"):
        return left
    right = _key(plan.right, tables)
    if left is None or right is None or plan.how == "full":
        return None
    if plan.how == "inner":
        left, right = _equal(left, plan.on), _equal(right, plan.on)
        if all(each & {one for one, _ in plan.on} for each in left):
            return right
    if all(each & {other for _, other in plan.on} for each in right):
        return left  # at most one row on the right for each of these
    if plan.how == "left":
        return None
    return tuple(dict.fromkeys((*left, *right)))


def _equal(key: Key, on: tuple[tuple[Col, Col], ...]) -> Key:
    """With the columns that are the same in every row."""
    return tuple(each.union(*(pair for pair in on if each & set(pair))) for each in key)
