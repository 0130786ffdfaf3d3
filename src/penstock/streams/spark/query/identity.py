"""By what operators and segments are known: names that are the same in every process.

State lies under the name of its operator, so a change of what is written here gives up all state.
"""

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from pyspark.sql import DataFrame

from penstock.streams.algebra.kernel import Stepping
from penstock.streams.algebra.rows.selection import Selection, columns_in


def operator_spec(kernel: Stepping) -> dict[str, Any]:
    """What the state of an operator depends on: columns that it does not read may come and go."""
    spec = {name: value for name, value in kernel.spec().items() if name != "schema"}
    fields = [*kernel.state.keys, *kernel.state.values]
    return spec | {"state": {each.name: str(each.type) for each in fields}}


def described(
    identity: str, selection: Selection | None, needed: Collection[str] | None, spread: str = ""
) -> str:
    """Which rows of a leaf these are, as far as those columns matter that are needed, or all."""
    steps = [] if selection is None else [*selection.steps]
    if selection is not None and needed is not None:
        steps = _pruned(selection, needed)
    return json.dumps([identity, steps, spread], default=str)


def _pruned(selection: Selection, needed: Collection[str]) -> list[Any]:
    """The steps, without columns that nobody needs further on."""
    wanted = set(needed)
    steps: list[Any] = []
    for step in reversed(selection.steps):
        if isinstance(step, Mapping):
            kept = {new: old for new, old in sorted(step.items()) if new in wanted}
            wanted = {name for each in kept.values() for name in columns_in(each)}
            steps.insert(0, kept)
        else:
            wanted |= set(columns_in(step))
            steps.insert(0, step)
    return steps


def plan_text(frame: DataFrame) -> str:
    """The plan of a DataFrame, the same in every process: without numbers that Spark gives out."""
    text = str(frame._jdf.queryExecution().analyzed().canonicalized().toString())
    return re.sub(r"#\d+L?|RDD\[\d+\]|at \S+:\d+", "", text)


def digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
