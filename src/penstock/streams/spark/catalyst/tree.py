"""Spark's analyzed plans, as trees in Python.

Catalyst writes a plan as JSON: nodes in pre-order, each with its fields, in which expressions are
lists of the same kind. That is one call, however large the plan; but metadata, enumerations and
bytes are missing from it, and are asked of the JVM's own node, where they matter.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame

ExprId = tuple[int, str]


@dataclass(frozen=True)
class Tree:
    """A node of a plan or of an expression. `name` is its class, without the package."""

    name: str
    fields: Mapping[str, Any]
    children: "Sequence[Tree]"
    find: Callable[[], JavaObject]

    @cached_property
    def java(self) -> JavaObject:
        return self.find()

    @property
    def expr_id(self) -> ExprId:
        return self.fields["exprId"]["id"], self.fields["exprId"]["jvmId"]

    def expression(self, field: str) -> "Tree":
        """The field of a plan that is an expression, which has the accessor of its name."""
        return _tree(iter(self.fields[field]), lambda: getattr(self.java, field)())

    def expressions(self, field: str) -> "list[Tree]":
        """The field of a plan that is a list of them."""

        def finder(place: int) -> Callable[[], JavaObject]:
            return lambda: getattr(self.java, field)().apply(place)

        return [_tree(iter(each), finder(place)) for place, each in enumerate(self.fields[field])]


def analyzed(df: DataFrame) -> Tree:
    plan = df._jdf.queryExecution().analyzed()
    return _tree(iter(json.loads(plan.toJSON())), lambda: plan)


def _tree(nodes: Iterator[dict[str, Any]], find: Callable[[], JavaObject]) -> Tree:
    """The next tree of nodes in pre-order."""
    fields = next(nodes)
    children: list[Tree] = []
    tree = Tree(fields["class"].rpartition(".")[2], fields, children, find)

    def finder(place: int) -> Callable[[], JavaObject]:
        return lambda: tree.java.children().apply(place)

    children += [_tree(nodes, finder(place)) for place in range(fields["num-children"])]
    return tree
