"""Several views in one Spark job, as each job takes longer than what it has to do."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import lit, struct

from penstock.streams.spark.sql import sql


def frame_of(spark: SparkSession, columns: Mapping[str, str], rows: Iterable[Any]) -> DataFrame:
    """Texts that are times or decimals become such."""
    kinds = {name: kind for name, kind in columns.items() if kind.startswith(("decimal", "timest"))}
    texts = ", ".join(
        f"`{name}` {'string' if name in kinds else columns[name]}" for name in columns
    )
    plain = [
        tuple(str(value) if isinstance(value, Decimal) else value for value in row) for row in rows
    ]
    frame = spark.createDataFrame(plain, texts)
    return frame.withColumns({name: frame[name].cast(kind) for name, kind in kinds.items()})


def together(queries: Sequence[str], frames: Mapping[str, DataFrame]) -> DataFrame:
    """Rows of all of them: which query it is, its row as a struct v<number>, and the weight."""
    parts = []
    for number, query in enumerate(queries):
        view = sql(query, checkpoint=None, **frames)
        names = [f"`{name}`" for name in view.columns if name != "_weight"]
        parts.append(
            view.select(lit(number).alias("query"), struct(*names).alias(f"v{number}"), "_weight")
        )
    whole, *others = parts
    for each in others:
        whole = whole.unionByName(each, allowMissingColumns=True)
    return whole


def values(row: Row) -> tuple[Any, ...]:
    """The values of a row of `together`."""
    return tuple(map(_plain, row[f"v{row.query}"]))


def _plain(value: Any) -> Any:
    if isinstance(value, Row):
        return value.asDict(recursive=True)
    return [_plain(each) for each in value] if isinstance(value, list) else value
