import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidInput, InvalidSchema, KernelError, UnknownName
from penstock.streams.algebra import AggregateKernel, Aggregation, count
from tests.streams.algebra.batches import Query, Row, batch_of
from tests.streams.algebra.merging import spread, summed_up

geometric_mean = Aggregation(
    partial=lambda prices: (sum(map(math.log, prices)), len(prices)),
    merge=lambda one, other: (one[0] + other[0], one[1] + other[1]),
    result=lambda state: math.exp(state[0] / state[1]),
    state="logs double, count long",
    returns="double",
)
longest = Aggregation(
    partial=lambda texts: max(texts, key=lambda each: (len(each), each)),
    merge=lambda one, other: max(one, other, key=lambda each: (len(each), each)),
    result=lambda text: text,
    state="text string",
    returns="string",
)
weighted_mean = Aggregation(
    partial=lambda values, weights: (
        sum(v * w for v, w in zip(values, weights, strict=True)),
        sum(weights),
    ),
    merge=lambda one, other: tuple(map(sum, zip(one, other, strict=True))),
    result=lambda state: state[0] / state[1],
    state="total long, weight long",
    returns="double",
)
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("w", pa.int64())])


@given(
    st.lists(st.none() | st.integers(1, 1000), max_size=30),
    st.lists(st.integers(0, 30), max_size=4),
    st.integers(0, 2**32),
)
@settings(deadline=None, max_examples=60)
def test_any_cuts_and_order(values: list[int | None], cuts: list[int], seed: int) -> None:
    found = summed_up({"g": geometric_mean("v")}, spread(values, pa.int64(), 2), cuts, seed)
    for key, result in found.items():
        there = [value for value in values[key::2] if value is not None]
        if there:
            assert result["g"] == pytest.approx(math.prod(there) ** (1 / len(there)))
        else:
            assert result["g"] is None


def test_a_state_of_one_column_is_its_value(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int8()), ("v", pa.string())])
    query = Query(tmp_path, AggregateKernel("k", {"l": longest("v")}, schema))
    for values in (["a", None], ["ccc", "bb"], ["aaa"]):
        query.batch([batch_of(schema, [{"k": 1, "v": value} for value in values])])
    assert query.table() == ["{'k': 1, 'l': 'ccc'}"]


def test_of_several_columns_rows_with_a_null_are_left_out() -> None:
    pairs = [(1, 10), (None, 5), (4, 20), (7, None)]
    rows = batch_of(SCHEMA, [{"k": "a", "v": v, "w": w} for v, w in pairs])
    assert summed_up({"m": weighted_mean("v", "w")}, rows, [1, 2], 3)["a"] == {"m": 3.0}


def _raising(*_: object) -> object:
    raise LookupError("no such price")


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({"partial": _raising}, "LookupError: no such price"),
        ({"merge": _raising}, "LookupError: no such price"),
        ({"result": _raising}, "LookupError: no such price"),
        ({"partial": lambda values: (1.0,)}, "TypeError: a state has 1 values and not 2"),
        ({"partial": lambda values: (1.0, "many")}, "ArrowInvalid"),
        ({"partial": lambda values: 5}, "TypeError"),
        ({"result": lambda state: "much"}, "ArrowInvalid"),
    ],
)
def test_what_fails_is_named_with_its_key(changed: dict[str, Any], cause: str) -> None:
    made = Aggregation(**{**vars(geometric_mean), **changed})
    values: list[Row] = [{"k": "ok", "v": None}, {"k": "bad", "v": 1}, {"k": "bad", "v": 2}]
    with pytest.raises(KernelError, match=rf"'typical' of k = 'bad' failed: {cause}") as raised:
        summed_up({"typical": made("v")}, batch_of(SCHEMA, values), [2])
    assert raised.value.__cause__ is not None


def test_functions_do_not_travel_as_text() -> None:
    kernel = AggregateKernel("k", {"g": geometric_mean("v"), "n": count()}, SCHEMA)
    assert not kernel.portable
    assert kernel.needed == ("k", "v")
    assert json.loads(json.dumps(kernel.spec()))["aggregates"]["g"] == {
        "aggregate": "own",
        "columns": ["v"],
        "state": "logs double, count long",
        "returns": "double",
    }


def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(InvalidSchema):
        Aggregation(**{**vars(longest), "returns": "text"})
    with pytest.raises(InvalidInput, match="hint"):
        longest()
    with pytest.raises(UnknownName, match="nobody"):
        AggregateKernel("k", {"l": longest("nobody")}, SCHEMA)
    table = SCHEMA.append(pa.field("_weight", pa.int8()))
    with pytest.raises(InvalidInput, match="over a table"):
        AggregateKernel("k", {"l": longest("k")}, table)
