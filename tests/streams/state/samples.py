"""A few distinct values of every type that state can hold, edge cases among them."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa

_INTEGERS = {
    f"{sign}int{bits}": (
        getattr(pa, f"{sign}int{bits}")(),
        [0, 1, 2 ** (bits if sign else bits - 1) - 1, 0 if sign else -(2 ** (bits - 1))],
    )
    for sign in ("", "u")
    for bits in (8, 16, 32, 64)
}
_FLOATS = [0.0, -1.5, float("nan"), float("inf"), float("-inf")]
_DAY = dt.date(2024, 2, 29)
_TIME = dt.time(23, 59, 58)
_MOMENT = dt.datetime(2024, 2, 29, 23, 59, 58, tzinfo=dt.UTC)
_LONG_AGO = dt.datetime(1960, 1, 1, tzinfo=dt.UTC)
_INSIDE = pa.struct({"a": pa.int32(), "b": pa.list_(pa.string())})

# Without nulls, which every test adds, and without two values that are equal.
SAMPLES: dict[str, tuple[pa.DataType, list[Any]]] = {
    **{name: (kind, sorted(set(values))) for name, (kind, values) in _INTEGERS.items()},
    "bool": (pa.bool_(), [False, True]),
    "float16": (pa.float16(), _FLOATS),
    "float32": (pa.float32(), _FLOATS),
    "float64": (pa.float64(), [*_FLOATS, 5e-324, 1.7976931348623157e308]),
    "date32": (pa.date32(), [dt.date(1, 1, 1), dt.date(1970, 1, 1), _DAY]),
    "date64": (pa.date64(), [dt.date(1969, 12, 31), _DAY]),
    "time32": (pa.time32("ms"), [dt.time(0), _TIME]),
    "time64": (pa.time64("us"), [dt.time(0), _TIME]),
    "timestamp": (pa.timestamp("us"), [_LONG_AGO, _MOMENT]),
    "timestamp with zone": (
        pa.timestamp("ms", "Europe/Berlin"),
        [_LONG_AGO, _MOMENT],
    ),
    "duration": (pa.duration("us"), [dt.timedelta(0), dt.timedelta(days=-3, microseconds=7)]),
    "interval": (pa.month_day_nano_interval(), [(1, 2, 3), (-1, 0, 0), (0, 0, 0)]),
    "decimal32": (pa.decimal32(5, 2), [Decimal("0.00"), Decimal("-999.99")]),
    "decimal64": (pa.decimal64(15, 3), [Decimal("1.500"), Decimal("-123456789012.345")]),
    "decimal128": (pa.decimal128(38, 10), [Decimal("1.5"), Decimal(-(10**27))]),
    "decimal256": (pa.decimal256(70, 2), [Decimal("0.01"), Decimal(-(10**60))]),
    "string": (pa.string(), ["", "a", "ä€😀", "x" * 7, "x" * 8, "x" * 9, "y" * 5000]),
    "large string": (pa.large_string(), ["", "b", "bb"]),
    "binary": (pa.binary(), [b"", b"\x00", b"\x00\x00", b"\xff" * 17]),
    "large binary": (pa.large_binary(), [b"", b"\x01"]),
    "fixed binary 3": (pa.binary(3), [b"abc", b"ab\x00"]),
    "fixed binary 16": (pa.binary(16), [b"0123456789abcdef", b"\x00" * 16]),
    "fixed binary 100": (pa.binary(100), [b"a" * 100, b"b" * 100]),
    "fixed binary 0": (pa.binary(0), [b""]),
    "list": (pa.list_(pa.int64()), [[], [1], [1, None], [None, 1], list(range(100))]),
    "list of strings": (pa.list_(pa.string()), [[], [""], ["", ""], ["a", None, "bc"], ["abc"]]),
    "list of lists": (pa.list_(pa.list_(pa.int8())), [[], [[]], [None], [[1], []], [[], [1]]]),
    "large list": (pa.large_list(pa.float32()), [[], [1.5, None]]),
    "fixed size list": (pa.list_(pa.int16(), 2), [[1, 2], [1, None], [None, None]]),
    "fixed size list of strings": (pa.list_(pa.string(), 2), [["", "a"], ["a", ""], [None, "a"]]),
    "struct": (
        _INSIDE,
        [{"a": 1, "b": ["x"]}, {"a": None, "b": None}, {"a": 1, "b": []}, {"a": 1, "b": [None]}],
    ),
    "struct of nothing": (pa.struct({}), [{}]),
    "struct of structs": (
        pa.struct({"in": _INSIDE, "fixed": pa.list_(_INSIDE, 1)}),
        [
            {"in": None, "fixed": None},
            {"in": {"a": None, "b": None}, "fixed": None},
            {"in": {"a": 3, "b": ["y", ""]}, "fixed": [None]},
            {"in": None, "fixed": [{"a": 3, "b": ["y", ""]}]},
        ],
    ),
    "list of structs": (pa.list_(_INSIDE), [[], [None], [{"a": 1, "b": ["p", "q"]}, None]]),
    "map": (
        pa.map_(pa.string(), pa.list_(pa.int32())),
        [[], [("a", [1])], [("a", None)], [("a", []), ("b", [2, None])]],
    ),
    "map of lists of maps of nulls": (
        pa.map_(pa.string(), pa.list_(pa.map_(pa.string(), pa.null()), 2)),
        [
            [("", [None, [("", None), ("", None)]]), ("", None)],
            [("", [None, [("", None), ("", None)]])],
        ],
    ),
    "null": (pa.null(), []),
}
