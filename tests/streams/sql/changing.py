"""Tables that change batch by batch, in folders that a stream reads."""

import json
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.streams.sql import shop, tpch

Row = tuple[Any, ...]
NewRow = Callable[[random.Random, str, Sequence[Row]], Row | None]

_TPCH = tpch.tables()
_IDS = range(1, 13)


class ChangingTables:
    """`rows` is what there is; each batch of changes is a file for each table that has some.

    A new row comes from `new_row`, which knows those that are there, and may find none. Tables that
    are `growing` lose no row, and have no weights.
    """

    def __init__(
        self,
        folder: Path,
        columns: Mapping[str, Mapping[str, str]],
        new_row: NewRow,
        seed: int,
        growing: Collection[str] = (),
    ) -> None:
        self._folder = folder
        self._columns = columns
        self._new_row = new_row
        self.seed = seed
        self._dice = random.Random(seed)
        self._growing = growing
        self._written = 0
        self.rows: dict[str, list[Row]] = {name: [] for name in columns}
        for name in columns:
            (folder / name).mkdir(parents=True)

    def frames(self, spark: SparkSession) -> dict[str, DataFrame]:
        found = {}
        for name, kinds in self._columns.items():
            cast = {each: kind for each, kind in kinds.items() if kind.startswith(("dec", "times"))}
            texts = [f"`{each}` {'string' if each in cast else kinds[each]}" for each in kinds]
            if name not in self._growing:
                texts.append("_weight int")
            frame = spark.readStream.schema(", ".join(texts)).json(str(self._folder / name))
            found[name] = frame.withColumns({each: frame[each].cast(cast[each]) for each in cast})
        return found

    def change(self, most: int, least: int = 0) -> None:
        """Rows come, go and become others; with 0 as the least, some tables stay as they are."""
        self._written += 1
        for name, rows in self.rows.items():
            changes: list[tuple[Row, int]] = []
            for _ in range(self._dice.randint(least, most)):
                if rows and name not in self._growing and self._dice.random() < 0.4:
                    gone = rows.pop(self._dice.randrange(len(rows)))
                    changes.append((gone, -1))
                    if self._dice.random() < 0.5:
                        continue
                row = self._new_row(self._dice, name, rows)
                if row is not None:
                    rows.append(row)
                    changes.append((row, 1))
            if changes:
                self._write(name, changes)

    def _write(self, name: str, changes: list[tuple[Row, int]]) -> None:
        lines = [
            {**dict(zip(self._columns[name], row, strict=True)), "_weight": weight}
            for row, weight in changes
        ]
        whole = self._folder / f"{name}-{self._written}"
        whole.write_text("\n".join(json.dumps(line, default=str) for line in lines))
        whole.rename(self._folder / name / f"{self._written}.json")


def changing_shop(folder: Path, seed: int, growing: Collection[str] = ()) -> ChangingTables:
    columns = {name: shop.columns_of(name) for name in shop.SCHEMAS}
    return ChangingTables(folder, columns, _row_of_the_shop, seed, growing)


def changing_tpch(folder: Path, seed: int, growing: Collection[str] = ()) -> ChangingTables:
    """Rows of `tpch.tables`, each there or not."""
    return ChangingTables(folder, tpch.COLUMNS, _row_of_tpch, seed, growing)


def _row_of_the_shop(dice: random.Random, name: str, there: Sequence[Row]) -> Row | None:
    values = {column: _value(dice, column) for column in shop.columns_of(name)}
    if name in shop.KEYS:
        free = sorted({*_IDS} - {row[0] for row in there})
        if not free:
            return None
        values["id"] = dice.choice(free)
    if name == "tweets":  # none at the same time, as otherwise any of them may come first
        values["timestamp"] = f"2026-01-31 10:{values['id']:02}:00"
    return tuple(values.values())


def _value(dice: random.Random, column: str) -> Any:
    match column:
        case "name" | "country" | "product" | "text":
            return dice.choice([None, "DE", "FR", "tea", "cup"])
        case "price":
            return dice.choice([None, "1.20", "0.30", "5.00"])
        case "at":
            return dice.choice([None, f"2026-01-31 10:{dice.randint(10, 59)}:00"])
        case "amount":
            return dice.choice([None, 1, 3, 6, 7])
    return dice.choice([None, 1, 2, 3, 4])


def _row_of_tpch(dice: random.Random, name: str, there: Sequence[Row]) -> Row | None:
    free = sorted({*_TPCH[name]} - {*there})
    return dice.choice(free) if free else None
