"""Golden files: queries with their plans and results.

    == name
    SELECT ...
    -- oracle        how DuckDB has to be asked, where it is not the same
    -- plan
    -- result

`UPDATE_GOLDEN=1` writes plans and results anew, from what there is.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "golden" / "sql"
UPDATING = os.environ.get("UPDATE_GOLDEN") == "1"


@dataclass
class Case:
    file: str
    name: str
    parts: dict[str, str] = field(default_factory=dict)

    @property
    def sql(self) -> str:
        return self.parts["sql"]

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"

    def expect(self, part: str, found: str) -> None:
        if UPDATING:
            self.parts[part] = found
            _write(self)
        assert self.parts.get(part, "") == found


def cases(file: str) -> list[Case]:
    found = []
    for block in (FOLDER / f"{file}.txt").read_text().split("== ")[1:]:
        name, _, body = block.partition("\n")
        case, part = Case(file, name), "sql"
        for line in body.splitlines():
            if line in ("-- oracle", "-- plan", "-- result"):
                part = line[3:]
            else:
                case.parts[part] = f"{case.parts[part]}\n{line}" if part in case.parts else line
        case.parts = {part: text.strip("\n") for part, text in case.parts.items()}
        found.append(case)
    return found


def _write(changed: Case) -> None:
    text = []
    for case in cases(changed.file):
        parts = changed.parts if case.name == changed.name else case.parts
        text.append(f"== {case.name}\n{parts['sql']}\n")
        text += [
            f"-- {part}\n{parts[part]}\n" for part in ("oracle", "plan", "result") if part in parts
        ]
        text.append("\n")
    (FOLDER / f"{changed.file}.txt").write_text("".join(text).rstrip("\n") + "\n")


def table(names: Iterable[str], rows: Iterable[tuple[Any, ...]]) -> str:
    lines = sorted(" | ".join(_shown(value) for value in row) for row in rows)
    return "\n".join([" | ".join(names), *lines])


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(_shown(each) for each in value.values())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, float | Decimal):  # a mean is one or the other, with more digits or less
        return f"{round(Decimal(value), 5).normalize():f}"
    return "null" if value is None else str(value)
