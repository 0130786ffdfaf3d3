"""Tables of the shop that change batch by batch, in folders that a stream reads."""

import json
import random
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.streams.sql.shop import KEYS, SCHEMAS, Row, columns_of


class ChangingShop:
    """`rows` is what there is; each batch of changes is a file for each table that has some."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._dice = random.Random(seed)
        self._written = 0
        self.rows: dict[str, list[Row]] = {name: [] for name in SCHEMAS}
        for name in SCHEMAS:
            (folder / name).mkdir(parents=True)

    def frames(self, spark: SparkSession) -> dict[str, DataFrame]:
        found = {}
        for name in SCHEMAS:
            kinds = columns_of(name)
            cast = {each: kind for each, kind in kinds.items() if kind.startswith(("dec", "times"))}
            texts = [f"`{each}` {'string' if each in cast else kinds[each]}" for each in kinds]
            stream = spark.readStream.schema(f"{', '.join(texts)}, _weight int")
            frame = stream.json(str(self._folder / name))
            found[name] = frame.withColumns({each: frame[each].cast(cast[each]) for each in cast})
        return found

    def change(self, most: int) -> None:
        """Rows come, go and become others; some tables stay as they are."""
        self._written += 1
        for name, rows in self.rows.items():
            changes: list[tuple[Row, int]] = []
            for _ in range(self._dice.randint(0, most)):
                if rows and self._dice.random() < 0.4:
                    gone = rows.pop(self._dice.randrange(len(rows)))
                    changes.append((gone, -1))
                    if self._dice.random() < 0.5:
                        continue
                row = self._row(name)
                rows.append(row)
                changes.append((row, 1))
            if changes:
                self._write(name, changes)

    def _write(self, name: str, changes: list[tuple[Row, int]]) -> None:
        lines = [
            json.dumps({**dict(zip(columns_of(name), row, strict=True)), "_weight": weight})
            for row, weight in changes
        ]
        whole = self._folder / f"{name}-{self._written}"
        whole.write_text("\n".join(lines))
        whole.rename(self._folder / name / f"{self._written}.json")

    def _row(self, name: str) -> Row:
        values = {column: self._value(column) for column in columns_of(name)}
        if name in KEYS:
            taken = {row[0] for row in self.rows[name]}
            values["id"] = self._dice.choice([each for each in range(1, 99) if each not in taken])
        if name == "tweets":  # none at the same time, as otherwise any of them may come first
            hours, minutes = divmod(values["id"], 60)
            values["timestamp"] = f"2026-01-31 {10 + hours}:{minutes:02}:00"
        return tuple(values.values())

    def _value(self, column: str) -> Any:
        words = [None, "DE", "FR", "tea", "cup"]
        match column:
            case "name" | "country" | "product" | "text":
                return self._dice.choice(words)
            case "price":
                return self._dice.choice([None, "1.20", "0.30", "5.00"])
            case "at":
                return self._dice.choice([None, f"2026-01-31 10:{self._dice.randint(10, 59)}:00"])
        return self._dice.choice([None, 1, 2, 3, 4])
