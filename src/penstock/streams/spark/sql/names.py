"""Columns and expressions of a plan as Spark takes them."""

import re

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import col, lit
from sqlglot import exp

from penstock.streams.algebra.changes import WEIGHT
from penstock.streams.sql.parse import ViewDialect
from penstock.streams.sql.plan import Col, Expr


def physical(column: Col) -> str:
    """The name of a column in DataFrames and in state, which no other column has.

    Letters, digits and _ stay as they are. What else there is becomes its number between %, as
    Spark would take a dot for a part of a struct, and a backtick for the end of a name.
    """
    if not column.table:
        return column.name
    name = re.sub(r"\W", lambda found: f"%{ord(found[0]):x}%", column.name)
    return f"{column.table}__{name}"


def text_of(expression: Expr) -> str:
    def visit(node: Expr) -> Expr:
        if isinstance(node, exp.Column):
            name = physical(Col(node.table, node.name))
            return exp.column(exp.to_identifier(name, quoted=True))
        return node

    return expression.copy().transform(visit).sql(ViewDialect, identify=True)


def own_weight(frame: DataFrame) -> list[str]:
    """Nothing for a stream, whose rows are all there to stay."""
    return [WEIGHT] if WEIGHT in frame.columns else []


def weight(frame: DataFrame) -> Column:
    return col(WEIGHT) if WEIGHT in frame.columns else lit(1).alias(WEIGHT)
