"""Rows that come any way, for tests that compare a stream with a batch."""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.streams.spark.crash import POINTS

EXAMPLES = int(os.environ.get("EXAMPLES", "1"))
MORNING = datetime(2026, 1, 31, 10, tzinfo=UTC)


def rows_of(who: str, names: list[str]) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Two minutes of rows of these, in the column `who`, with `ms` and `at`."""
    rows: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
        st.fixed_dictionaries(
            {
                who: st.none() | st.sampled_from(names),
                "ms": st.none() | st.integers(0, 9),
                "at": st.integers(0, 120).map(lambda later: MORNING + timedelta(seconds=later)),
            }
        ),
        min_size=5,
        max_size=60,
    )
    return rows.flatmap(
        lambda some: st.sampled_from([some, sorted(some, key=lambda row: row["at"])])
    )


def dealt(rows: st.SearchStrategy[list[dict[str, Any]]]) -> Callable[[Any], Any]:
    """Gives a test rows, in order or not, partitions, a seed and where to crash."""
    given_so = given(
        rows=rows,
        partitions=st.integers(1, 3),
        seed=st.integers(0, 2**32),
        crash=st.sampled_from([None, *POINTS]),
    )
    some = settings(
        max_examples=EXAMPLES,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        phases=[phase for phase in settings().phases if phase.name != "shrink"],
    )
    return lambda test: some(given_so(test))
