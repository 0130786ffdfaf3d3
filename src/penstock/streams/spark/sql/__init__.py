"""SQL views on Spark."""

from penstock.streams.spark.sql.views import key_of, keyed, operators_of, sql, view_of

__all__ = ["key_of", "keyed", "operators_of", "sql", "view_of"]
