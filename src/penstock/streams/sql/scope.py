"""What the names in a query mean: each column of it is one of the plan."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlglot import exp

from penstock.errors import InvalidSql
from penstock.streams.sql.parse import Source, nearest
from penstock.streams.sql.plan import Col, Expr, columns_in, is_bound


class Table(NamedTuple):
    """What can be read by a name; `key` identifies a row of it, if that is known."""

    columns: tuple[str, ...]
    key: tuple[str, ...] = ()


class Context:
    """What all of a query's parts share: its text, the tables, and which names are taken."""

    def __init__(self, source: Source, tables: Mapping[str, Table]) -> None:
        self.source = source
        self.tables = {name.lower(): (name, table) for name, table in tables.items()}
        self._taken: set[str] = set()

    def alias(self, wanted: str) -> str:
        """A name like this one that no other table of the plan has.

        It has no two underscores in a row and none at its ends, as these part it from the names of
        columns where they are joined.
        """
        words = "".join(each if each.isalnum() else "_" for each in wanted.lower())
        stem = "_".join(word for word in words.split("_") if word) or "t"
        name, number = stem, 1
        while name in self._taken:
            number += 1
            name = f"{stem}{number}"
        self._taken.add(name)
        return name


@dataclass
class Relation:
    """A table under the name that the query gives it; columns as written, in order."""

    name: str
    columns: list[tuple[str, Col]]

    def find(self, name: str) -> Col | None:
        return next((col for each, col in self.columns if each.lower() == name.lower()), None)


@dataclass(frozen=True)
class CommonTable:
    query: exp.Query
    names: tuple[str, ...]
    scope: "Scope"


@dataclass
class Scope:
    context: Context
    parent: "Scope | None" = None
    common: dict[str, CommonTable] = field(default_factory=dict)
    relations: list[Relation] = field(default_factory=list)
    merged: dict[str, Expr] = field(default_factory=dict)  # columns that USING makes one of two
    hidden: set[Col] = field(default_factory=set)  # and which * does not show again

    def add(self, relation: Relation, node: Expr) -> None:
        if any(each.name.lower() == relation.name.lower() for each in self.relations):
            raise self.context.source.refusal(
                f"there are two tables {relation.name!r}", node, "name one of them: ... AS other"
            )
        self.relations.append(relation)

    def bind(self, node: Expr) -> Expr:
        """The same with columns of the plan; queries inside are left as they are."""

        def visit(each: Expr) -> Expr:
            if isinstance(each, exp.Query):
                return each.copy()  # something else than it was, so nobody looks into it
            if isinstance(each, exp.Column) and not is_bound(each):
                found = self._resolved(each)
                places = [part.meta for part in each.parts if "start" in part.meta]
                if places:
                    start = min(place["start"] for place in places)
                    found.meta.update(start=start, end=max(place["end"] for place in places))
                return found
            return each

        return node.copy().transform(visit, copy=False)

    def expand(self, star: Expr) -> Iterator[tuple[str, Expr]]:
        """The columns that `*` or `t.*` stands for."""
        table = star.args.get("table") if isinstance(star, exp.Column) else None
        mark = star.this if isinstance(star, exp.Column) else star
        if mark.args.get("replace") or mark.args.get("rename"):
            raise self.context.source.refusal(
                "* with other columns in it is not known", star, "write the columns", r"\*"
            )
        without = {each.name.lower() for each in mark.args.get("except_") or ()}
        relations = self.relations
        if table is not None:
            relations = [each for each in relations if each.name.lower() == table.name.lower()]
            if not relations:
                raise self._unknown_table(star, table.name)
        for relation in relations:
            for name, col in relation.columns:
                if name.lower() in without or (table is None and col in self.hidden):
                    continue
                merged = self.merged.get(name.lower()) if table is None else None
                yield name, merged.copy() if merged is not None else col.ref()

    def names(self) -> list[str]:
        return [name for relation in self.relations for name, _ in relation.columns]

    def _resolved(self, column: exp.Column) -> Expr:
        if isinstance(column.this, exp.Star):
            fields = [
                exp.PropertyEQ(this=exp.to_identifier(name), expression=value)
                for name, value in self.expand(column)
            ]
            return exp.Struct(expressions=fields)
        parts = [each.name for each in column.parts]
        scope: Scope | None = self
        while scope is not None:
            found = scope._own(column, parts)
            if found is not None:
                return found
            scope = scope.parent
        known = {each.name.lower() for each in self.relations}
        if len(parts) > 1 and parts[0].lower() not in known:
            raise self._unknown_table(column, parts[0])
        names = self.names()
        if len(parts) > 1:
            names = [
                name
                for relation in self.relations
                if relation.name.lower() == parts[0].lower()
                for name, _ in relation.columns
            ]
        raise self.context.source.refusal(
            f"there is no column {'.'.join(parts)!r}", column, nearest(parts[-1], names)
        )

    def _own(self, column: exp.Column, parts: list[str]) -> Expr | None:
        """The column of a table named first, or one that any of them has, and then its fields."""
        if len(parts) > 1:
            for relation in self.relations:
                if relation.name.lower() == parts[0].lower():
                    col = relation.find(parts[1])
                    return None if col is None else _fields(col.ref(), parts[2:])
        if parts[0].lower() in self.merged:
            return _fields(self.merged[parts[0].lower()].copy(), parts[1:])
        found = [
            (relation.name, col)
            for relation in self.relations
            if (col := relation.find(parts[0])) is not None
        ]
        if len(found) > 1:
            names = " or ".join(f"{name}.{parts[0]}" for name, _ in found)
            raise self.context.source.refusal(
                f"{parts[0]!r} could be of several tables", column, f"write {names}"
            )
        return _fields(found[0][1].ref(), parts[1:]) if found else None

    def _unknown_table(self, node: Expr, name: str) -> InvalidSql:
        names = [relation.name for relation in self.relations]
        return self.context.source.refusal(
            f"there is no table {name!r} in this FROM", node, nearest(name, names)
        )

    def check_covered(self, expression: Expr, columns: tuple[Col, ...], node: Expr) -> None:
        """Raises InvalidSql when a column of a query around this one is used where it cannot be."""
        beyond = [col for col in columns_in(expression) if col not in columns]
        if beyond:
            raise self.context.source.refusal(
                f"{beyond[0]} of the query around this one cannot be used here",
                node,
                "compare it in the WHERE of this query, or write a JOIN",
            )


def _fields(value: Expr, names: list[str]) -> Expr:
    for name in names:
        value = exp.Dot(this=value, expression=exp.to_identifier(name))
    return value
