"""Catalyst, Spark's SQL engine: its plans as trees, its expressions in penstock's language."""

from penstock.streams.spark.catalyst.rules import typed
from penstock.streams.spark.catalyst.tree import ExprId, Tree, analyzed
from penstock.streams.spark.catalyst.typed import Typed, Untranslatable, references, type_of

__all__ = [
    "ExprId",
    "Tree",
    "Typed",
    "Untranslatable",
    "analyzed",
    "references",
    "type_of",
    "typed",
]
