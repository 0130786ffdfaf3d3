"""Random tables, and random expressions over them in SQL, of the kinds that are translated."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

SCHEMA = pa.schema(
    {
        "n": pa.int64(),  # which row it is
        "b": pa.bool_(),
        "y": pa.int8(),
        "h": pa.int16(),
        "i": pa.int32(),
        "i2": pa.int32(),
        "j": pa.int64(),
        "j2": pa.int64(),
        "f": pa.float32(),
        "x": pa.float64(),
        "x2": pa.float64(),
        "s": pa.string(),
        "u": pa.string(),
        "v": pa.binary(),
        "d": pa.date32(),
        "t": pa.timestamp("us", "UTC"),
        "e": pa.decimal128(10, 2),
        "r": pa.struct({"p": pa.int32(), "q": pa.string()}),
    }
)


def whole(bits: int) -> st.SearchStrategy[int]:
    most = 2 ** (bits - 1)
    edges = [-most, -most + 1, most - 1, most // 2, -1, 0, 1, 2, 7]
    return st.sampled_from(edges) | st.integers(-9, 9)


FLOATS = st.sampled_from(
    [
        *(0.0, -0.0, 1.0, -1.5, 2.5, 7.0, math.nan, math.inf, -math.inf, 127.9, -129.0),
        *(2.0**31 - 0.5, 2.0**31, 2.0**63, -(2.0**63), 1e300),
    ]
)
TEXTS = st.sampled_from(
    [
        *("", "a", "ab", "ABba", " a ", "\t12 ", "12", "-7", "+5", "127", "128", "1.5"),
        *("9" * 19, "9" * 20, "-", "straße", "ΑΣ", "İ", "ǆ", "\U0001f600x", "a\nb", "a%b_"),
        *("é\u0301", "\x00", "0012"),
    ]
)
DATES = st.sampled_from(
    [date(1970, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(3, 1, 1), date(9998, 12, 31)]
)
TIMES = st.sampled_from(
    [
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(2024, 2, 29, 12, 34, 56, 789012, tzinfo=UTC),
        datetime(3, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        datetime(9998, 12, 31, 23, 59, 59, tzinfo=UTC),
    ]
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "b": st.booleans(),
    "y": whole(8),
    "h": whole(16),
    "i": whole(32),
    "i2": whole(32),
    "j": whole(64),
    "j2": whole(64),
    "f": FLOATS,
    "x": FLOATS,
    "x2": FLOATS,
    "s": TEXTS,
    "u": TEXTS,
    "v": st.sampled_from([b"", b"a", b"\xff", b"a\x00"]),
    "d": DATES,
    "t": TIMES,
    "e": st.sampled_from([Decimal("0.00"), Decimal("-1.50"), Decimal("99999999.99")]),
    "r": st.fixed_dictionaries(
        {"p": st.none() | whole(32), "q": st.none() | TEXTS},
    ),
}
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}),
    min_size=1,
    max_size=6,
)

KINDS = {
    "b": ["b"],
    "y": ["y"],
    "h": ["h"],
    "i": ["i", "i2", "r.p"],
    "j": ["j", "j2"],
    "f": ["f"],
    "x": ["x", "x2"],
    "s": ["s", "u", "r.q"],
    "v": ["v"],
    "d": ["d"],
    "t": ["t"],
    "e": ["e"],
}
LITERALS = {
    "b": ["true", "false", "cast(null as boolean)"],
    "y": ["1Y", "-1Y", "127Y"],
    "h": ["1S", "-32768S"],
    "i": ["0", "1", "-1", "2147483647", "cast(null as int)"],
    "j": ["0L", "3L", "-1L", "9223372036854775807L"],
    "f": ["1.5F", "float('NaN')"],
    "x": ["0D", "-2.5D", "double('NaN')", "double('Infinity')", "0.1D"],
    "s": ["''", "'a'", "'ß'", "'12'", "cast(null as string)"],
    "v": ["cast(null as binary)"],
    "d": ["date'2024-02-29'", "date'1969-12-31'"],
    "t": ["timestamp'2024-02-29 12:34:56.5'", "timestamp'1970-01-01'"],
    "e": ["cast(1.5 as decimal(10,2))", "cast(3 as decimal(10,2))"],
}
ORDERED = "byhijfxsvdte"
# Spark computes the first operand of NULLIF and BETWEEN before all else, unless it is a column, and
# has errors of it even where AND, OR or IN do not come to it.
CASES = [
    template
    for kind in ORDERED
    for template in (
        f"coalesce({{{kind}}}, {{{kind}}})>{kind}",
        f"case when {{b}} then {{{kind}}} when {{b}} then {{{kind}}} end>{kind}",
        f"if({{b}}, {{{kind}}}, {{{kind}}})>{kind}",
        f"nullif({{{kind}!}}, {{{kind}}})>{kind}",
        f"greatest({{{kind}}}, {{{kind}}}, {{{kind}}})>{kind}",
        f"least({{{kind}}}, {{{kind}}})>{kind}",
        *(f"{{{kind}}} {sign} {{{kind}}}>b" for sign in ("=", "<>", "<", "<=", ">", ">=", "<=>")),
        f"{{{kind}}} in ({{{kind}}}, {{{kind}}})>b",
        f"{{{kind}}} in ({', '.join(LITERALS[kind])})>b",
        f"{{{kind}!}} between {{{kind}}} and {{{kind}}}>b",
        f"{{{kind}}} is null>b",
        f"{{{kind}}} is not null>b",
    )
]
INTEGERS = {"y": "tinyint", "h": "smallint", "i": "int", "j": "bigint"}
ARITHMETIC = [
    template
    for kind in "yhij"
    for template in (
        *(f"{{{kind}}} {sign} {{{kind}}}>{kind}" for sign in "+-*%"),
        f"{{{kind}}} / {{{kind}}}>x",
        f"{{{kind}}} div {{{kind}}}>j",
        f"pmod({{{kind}}}, {{{kind}}})>{kind}",
        f"-{{{kind}}}>{kind}",
        f"abs({{{kind}}})>{kind}",
        *(f"cast({{{kind}}} as {name})>{to}" for name, to in (("tinyint", "y"), ("smallint", "h"))),
        *(f"cast({{{kind}}} as {name})>{to}" for name, to in (("int", "i"), ("bigint", "j"))),
        *(f"cast({{{kind}}} as {name})>{to}" for name, to in (("float", "f"), ("double", "x"))),
        f"cast({{{kind}}} as string)>s",
        f"cast({{{kind}}} as boolean)>b",
        f"cast({{s}} as {INTEGERS[kind]})>{kind}",
        f"cast({{b}} as {INTEGERS[kind]})>{kind}",
    )
]
FLOATING = [
    template
    for kind in "fx"
    for template in (
        *(f"{{{kind}}} {sign} {{{kind}}}>{kind}" for sign in "+-*%"),
        f"{{{kind}}} / {{{kind}}}>x",
        f"-{{{kind}}}>{kind}",
        f"abs({{{kind}}})>{kind}",
        f"isnan({{{kind}}})>b",
        f"nanvl({{{kind}}}, {{{kind}}})>{kind}",
        f"pmod({{{kind}}}, {{{kind}}})>{kind}",
        *(f"cast({{{kind}}} as {name})>{to}" for name, to in (("tinyint", "y"), ("smallint", "h"))),
        *(f"cast({{{kind}}} as {name})>{to}" for name, to in (("int", "i"), ("bigint", "j"))),
        *(f"cast({{{kind}}} as {name})>{to}" for name, to in (("float", "f"), ("double", "x"))),
        f"cast({{{kind}}} as boolean)>b",
    )
]
OTHERS = [
    "not {b}>b",
    "{b} and {b}>b",
    "{b} or {b}>b",
    "cast({b} as string)>s",
    "{s} || {s}>s",
    "concat({s}, {s}, {s})>s",
    "upper({s})>s",
    "lower({s})>s",
    "length({s})>i",
    "length({v})>i",
    *(f"substring({{s}}, {start}, {size})>s" for start in (-5, -2, 0, 1, 3) for size in (-1, 2, 9)),
    "substring({s}, -1)>s",
    "left({s}, 2)>s",
    "trim({s})>s",
    "ltrim({s})>s",
    "rtrim({s})>s",
    "trim(both 'aβ' from {s})>s",
    *(
        f"{name}({{s}}, '{text}')>b"
        for name in ("startswith", "endswith", "contains")
        for text in ("", "a", "ß")
    ),
    *(
        f"{{s}} like '{pattern}'>b"
        for pattern in ("", "%", "a%", "%b", "a_b", "_", "%ß%", "a%_", "(a)")
    ),
    *(f"{name}({{d}})>i" for name in ("year", "month", "day")),
    *(f"{name}({{t}})>i" for name in ("year", "month", "day", "hour", "minute", "second")),
    *(
        f"date_trunc('{unit}', {{t}})>t"
        for unit in (
            "microsecond",
            "millisecond",
            "second",
            "minute",
            "hour",
            "day",
            "week",
            "month",
            "quarter",
            "YEAR",
        )
    ),
    *(f"trunc({{d}}, '{unit}')>d" for unit in ("week", "mon", "quarter", "year")),
    "cast({t} as date)>d",
    "to_date({t})>d",
    "cast({d} as timestamp)>t",
    "cast({t} as bigint)>j",
    "cast({t} as double)>x",
    "unix_micros({t})>j",
    "{t} + interval 90 minutes>t",
    "{t} - interval 1 day>t",
    "named_struct('k', {j} + j, 'm', {s} || s)>",  # all fields may be null
    "struct({i} - i2, {x} * x)>",
    "{e} + {e}>",
    "{e} * {e}>",
    "{e} * 2>",
    "{e} > 1.5>b",
    "{e} > {i}>b",
    "{i} > 1.5>b",
    "{x} > 1.5>b",
    "cast({i} as decimal(20, 3))>",
    "{j} > {h}>b",
    "{i} + {j}>j",
    "{i} * 2.5D>x",
    "{d} > '2000-01-01'>b",
    "{t} >= '2000-01-01 00:00:00'>b",
    "{i} = '5'>b",
]
TEMPLATES: dict[str, list[str]] = {}
for each in (*CASES, *ARITHMETIC, *FLOATING, *OTHERS):
    template, _, result = each.rpartition(">")
    TEMPLATES.setdefault(result, []).append(template)
RESULTS = [(result, template) for result, found in TEMPLATES.items() for template in found]


@st.composite
def expressions(draw: Any, kind: str | None = None, depth: int = 3) -> str:
    """As SQL, of the kind that is wanted or of any."""
    if kind is None:
        _, template = draw(st.sampled_from(RESULTS))
    elif depth == 0 or draw(st.integers(0, 3)) == 0 or kind not in TEMPLATES:
        leaves = [*KINDS[kind] * 3, *LITERALS[kind]]
        return str(draw(st.sampled_from(leaves)))
    else:
        template = draw(st.sampled_from(TEMPLATES[kind]))
    parts: list[str] = []
    for piece in template.split("{"):
        inner, closed, rest = piece.partition("}")
        below = 0 if inner.endswith("!") else depth - 1
        parts += [f"({draw(expressions(inner[:1], below))})", rest] if closed else [piece]
    return "".join(parts)
