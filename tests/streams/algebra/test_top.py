"""The first rows of groups against sorted lists, as rows come and go."""

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.streams.algebra import kernel_from_spec
from penstock.streams.algebra.changes import WEIGHT
from penstock.streams.algebra.keyed import levels
from penstock.streams.algebra.keyed.top import TopKernel
from penstock.streams.algebra.rows.sort_key import OrderBy, sort_keys
from tests.streams.algebra.batches import MISHAPS, Query

SCHEMA = pa.schema({"g": pa.string(), "a": pa.int32(), "t": pa.string(), "f": pa.float64()})
WEIGHTED = SCHEMA.append(pa.field(WEIGHT, pa.int32()))
Element = tuple[Any, ...]

elements = st.tuples(
    st.none() | st.sampled_from("xy"),
    st.none() | st.integers(-3, 3),
    st.none() | st.sampled_from(["", "a", "a\0", "a\0b", "ab", "b"]),
    st.none() | st.sampled_from([-1.5, 0.0, -0.0, 2.0, float("inf")]),
)
orders = st.lists(
    st.builds(OrderBy, st.sampled_from(["a", "t", "f"]), st.booleans(), st.booleans()), max_size=3
)


class Ordered:
    """A value in an order that may be turned, with nulls at one end."""

    def __init__(self, value: Any, order: OrderBy) -> None:
        self.value, self.order = value, order

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ordered) and self.value == other.value

    def __lt__(self, other: "Ordered") -> bool:
        if self.value is None or other.value is None:
            return (
                (self.value is None and other.value is not None) == self.order.nulls_first
                and (self.value is None or other.value is None)
                and self.value != other.value
            )
        one, two = (
            each.encode() if isinstance(each, str) else each for each in (self.value, other.value)
        )
        return bool(two < one if self.order.descending else one < two)


def sorting(order: list[OrderBy], row: Element) -> list[Ordered]:
    return [Ordered(row[SCHEMA.names.index(each.column)], each) for each in order]


@settings(max_examples=300)
@given(rows=st.lists(elements, min_size=2, max_size=12), order=orders)
def test_keys_compare_as_the_values_do(rows: list[Element], order: list[OrderBy]) -> None:
    batch = pa.RecordBatch.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA
    )
    keys = sort_keys([(batch.column(each.column), *each[1:]) for each in order], len(rows))
    for one, key in zip(rows, keys.to_pylist(), strict=True):
        for other, other_key in zip(rows, keys.to_pylist(), strict=True):
            assert (key < other_key) == (sorting(order, one) < sorting(order, other))


def batch_of(rows: list[tuple[Element, int]], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [dict(zip(schema.names, (*row, weight), strict=False)) for row, weight in rows], schema
    )


def check_top(result: Counter[Element], table: list[Element], kernel: TopKernel) -> None:
    """What tells rows apart that are equal in their order is not said."""
    asked = slice(kernel.skip, kernel.skip + kernel.count)
    total = 0
    for group in {row[0] if kernel.keys else None for row in table}:
        rows = [row for row in table if not kernel.keys or row[0] == group]
        rows.sort(key=lambda row: sorting(kernel.order, row))
        found = [row for row in result.elements() if not kernel.keys or row[0] == group]
        if kernel.rank is None:
            found.sort(key=lambda row: sorting(kernel.order, row))
        else:
            found.sort(key=lambda row: row[-1])
            assert [row[-1] for row in found] == [*range(1, len(rows) + 1)][asked]
            found = [row[:-1] for row in found]
        assert Counter(found) <= Counter(rows)
        orders = [sorting(kernel.order, row) for row in rows]
        assert [sorting(kernel.order, row) for row in found] == orders[asked]
        total += len(found)
    assert sum(result.values()) == total


@pytest.mark.parametrize("weighted", [True, False])
@settings(max_examples=40)
@given(
    data=st.data(),
    order=orders,
    by=st.sampled_from(["g", ()]),
    count=st.integers(1, 4),
    skip=st.integers(0, 2),
    rank=st.sampled_from([None, "place"]),
    mishap=st.sampled_from(MISHAPS),
)
def test_the_changes_add_up_to_the_first_rows(
    weighted: bool,
    data: Any,
    order: list[OrderBy],
    by: Any,
    count: int,
    skip: int,
    rank: str | None,
    mishap: str,
) -> None:
    schema = WEIGHTED if weighted else SCHEMA
    made = TopKernel(by, order, count, schema, skip=skip, rank=rank)
    kernel = kernel_from_spec(json.loads(json.dumps(made.spec())))
    assert isinstance(kernel, TopKernel)
    table: list[Element] = []
    result: Counter[Element] = Counter()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(levels, "_LEAST", 1)
        patch.setattr(levels, "_GROWTH", 2)
        query = Query(Path(folder), kernel, buckets=2)
        for _ in range(data.draw(st.integers(1, 5))):
            came = data.draw(st.lists(elements, max_size=14))
            gone = [row for row in table if weighted and data.draw(st.booleans())]
            for row in gone:
                table.remove(row)
            table += came
            changes = [(row, 1) for row in came] + [(row, -1) for row in gone]
            half = len(changes) // 2
            cuts = [batch_of(some, schema) for some in (changes[:half], changes[half:])]
            for found in query.batch(cuts, mishap):
                weight = found.pop(WEIGHT)
                result[tuple(found.values())] += weight
            assert all(count >= 0 for count in result.values())
            check_top(result, table, kernel)


def test_one_change_among_many_rows_moves_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(levels, "_LEAST", 8)
    kernel = TopKernel("g", [OrderBy("a", descending=True)], 3, WEIGHTED)
    query = Query(tmp_path, kernel)
    rows = [(("x", number, None, None), 1) for number in range(2_000)]
    query.batch([batch_of(rows, WEIGHTED)])
    top = 1_999
    for number in range(top, top - 60, -1):
        changes = query.batch([batch_of([(("x", number, None, None), -1)], WEIGHTED)])
        assert [(row["a"], row[WEIGHT]) for row in changes] == [(number, -1), (number - 3, 1)]


def test_what_has_no_order_is_refused() -> None:
    lists = pa.schema({"g": pa.string(), "l": pa.list_(pa.int64())})
    with pytest.raises(InvalidInput, match="put in order by l"):
        TopKernel("g", [OrderBy("l")], 3, lists)
    with pytest.raises(InvalidInput, match="no top of 0"):
        TopKernel("g", [OrderBy("a")], 0, SCHEMA)


def test_rows_of_other_types_are_another_state() -> None:
    """As they are kept as bytes, which do not tell."""
    kernels = [
        TopKernel((), [OrderBy("a")], 3, pa.schema({"a": pa.int64(), "b": kind}))
        for kind in (pa.int64(), pa.float64())
    ]
    specs = [{**kernel.spec(), "schema": None} for kernel in kernels]
    assert specs[0] != specs[1]
