"""What a view must be in the end, by Spark from all rows at once: no figure counts without it."""

import tempfile
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.functions import round as rounded
from pyspark.sql.functions import sum as total
from pyspark.sql.types import DoubleType

from penstock.bench.views.contenders import Contender
from penstock.bench.views.queries import Asked
from penstock.bench.views.stored import Stored
from penstock.errors import PenstockError
from penstock.streams.algebra.changes import WEIGHT

_DIGITS = 6  # of means, which depend on the order of what they are of


def check(contender: Contender, asked: Asked, stored: Stored) -> None:
    """Raises PenstockError when the view has other rows than it must."""
    session = contender.session
    for name in asked.tables:
        session.read.parquet(str(stored.whole(name))).createOrReplaceTempView(name)
    right = _counted(session.sql(f"SELECT *, 1 AS {WEIGHT} FROM ({asked.truth})"))
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        into = Path(folder) / "results"
        contender.milliseconds(asked, stored, into)
        found = _counted(contender.changes(asked, into).select(right.columns))
        wrong, missing = found.exceptAll(right).head(3), right.exceptAll(found).head(3)
    if wrong or missing:
        raise PenstockError(
            f"{contender.name} does not find what there is for {asked.row.what}",
            hint=f"it has {wrong or 'nothing'} instead of {missing or 'nothing'}",
        )


def _counted(changes: DataFrame) -> DataFrame:
    """The different rows, and how many there are of each."""
    names = [
        rounded(each.name, _DIGITS).alias(each.name) if each.dataType == DoubleType() else each.name
        for each in changes.schema
        if each.name != WEIGHT
    ]
    return changes.groupBy(names).agg(total(WEIGHT).alias(WEIGHT)).where(f"{WEIGHT} != 0")
