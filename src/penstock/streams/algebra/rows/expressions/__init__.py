"""Expressions over the columns of a batch, with the answers and the errors of Spark SQL.

JSON can hold them; `language` lists them. ANSI mode and a session in UTC are assumed, as penstock's
sessions have them. What cannot be answered exactly as Spark does is no expression of this language.
"""

from penstock.streams.algebra.rows.expressions.evaluation import evaluate, evaluate_condition
from penstock.streams.algebra.rows.expressions.language import Expression, columns_of, text_of
from penstock.streams.algebra.rows.expressions.refusals import Answer

__all__ = ["Answer", "Expression", "columns_of", "evaluate", "evaluate_condition", "text_of"]
