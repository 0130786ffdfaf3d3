"""SQL views: a query as a plan of operators that keep its answer up to date. No Spark in here."""

from penstock.streams.sql.explain import picture
from penstock.streams.sql.scope import Table
from penstock.streams.sql.views import View, explain, plan_view, statement, tables_of

__all__ = ["Table", "View", "explain", "picture", "plan_view", "statement", "tables_of"]
