"""Expressions in a view are Spark's own, whatever the parser makes of them on the way."""

import pytest
from pyspark.sql import SparkSession

from penstock.streams.spark.sql import sql
from tests.streams.sql import shop
from tests.streams.sql.in_spark import frame_of

EXPRESSIONS = [
    "id + 1", "id / 4", "id div 4", "id % 3", "-amount", "amount * 1.5", "price * 2", "price / 3",
    "amount > 3", "amount <=> NULL", "amount = 7 OR price IS NULL", "NOT amount > 3",
    "amount IN (1, 7)", "amount BETWEEN 2 AND 6", "coalesce(amount, -1)", "nvl(amount, 0)",
    "if(amount > 3, 'a', 'b')", "CASE id WHEN 10 THEN 1 ELSE 2 END", "nullif(amount, 7)",
    "cast(id AS string)", "cast('12' AS int)", "id::double", "bigint(id)", "try_cast('x' AS int)",
    "concat('a', id)", "'a' || id", "concat_ws('-', 'a', 'b')", "upper('a')", "length('abc')",
    "substring('abcdef', 2, 3)", "left('abc', 2)", "trim(' a ')", "lpad('a', 3, '*')",
    "replace('abc', 'b', 'x')", "regexp_replace('a1b2', '[0-9]', '')", "'abc' RLIKE '^a'",
    "regexp_extract('a12', '([0-9]+)', 1)", "split('a,b', ',')", "split('a,b', ',')[0]",
    "instr('abc', 'c')", "initcap('ab cd')", "reverse('abc')", "md5('a')", "sha2('a', 256)",
    "hash(id)", "xxhash64(id)", "format_number(1234.5, 1)", "round(price, 1)", "floor(price)",
    "ceil(price)", "abs(-amount)", "pow(amount, 2)", "sqrt(amount)", "pmod(-7, 3)", "sign(amount)",
    "greatest(1, amount)", "least(1, amount)", "year(at)", "month(at)", "day(at)", "hour(at)",
    "dayofweek(at)", "date(at)", "to_date('2026-01-31')", "date_add(date(at), 3)",
    "date_sub(date(at), 3)", "datediff(date(at), date '2026-01-01')", "date_trunc('hour', at)",
    "trunc(date(at), 'MM')", "date_format(at, 'yyyy-MM-dd HH')", "at + INTERVAL '1' HOUR",
    "at - INTERVAL 2 DAYS", "unix_timestamp(at)", "to_timestamp('2026-01-31 10:00:00')",
    "from_unixtime(0)", "add_months(date(at), 1)", "last_day(date(at))", "extract(MINUTE FROM at)",
    "array(1, 2)[1]", "array_contains(array(1, 2), id)", "size(array(1, 2))",
    "element_at(array(5, 6), 1)", "transform(array(1, 2), x -> x + id)",
    "filter(array(1, 2, 3), x -> x > 1)", "aggregate(array(1, 2), 0, (a, x) -> a + x)",
    "array_sort(array(3, 1))", "sort_array(array(3, 1), false)", "array_join(array('a', 'b'), '+')",
    "map('a', id)['a']", "map_keys(map('a', 1))", "struct(id, amount)", "named_struct('a', id).a",
    "to_json(struct(id))", "from_json('{\"a\": 1}', 'a int').a",
    "get_json_object('{\"a\":1}', '$.a')", "isnull(amount)", "isnotnull(amount)",
    "bit_count(id)", "id & 3", "shiftleft(id, 1)", "conv('ff', 16, 10)", "hex(id)", "ascii('a')",
    "translate('abc', 'b', 'x')", "repeat('a', 2)", "decode(id, 10, 'ten', 'other')", "typeof(id)",
    "date '2026-01-31'", "timestamp '2026-01-31'", "1e3", "1.50BD", "'it''s'", '"text"',
    "'a\\nb'", "'say \"it\"'", r"regexp_replace('a1', '\\d', 'x')", r"r'\d'", r"'\''",
    "X'1F'", "true", "NULL",
]  # fmt: skip


def test_expressions_are_those_of_spark(spark: SparkSession) -> None:
    orders = frame_of(spark, shop.columns_of("orders"), shop.ROWS["orders"])
    named = [f"{text} AS c{number}" for number, text in enumerate(EXPRESSIONS)]
    theirs = orders.selectExpr(*named)
    ours = sql(f"SELECT {', '.join(named)} FROM orders", orders=orders)
    wrong = [
        f"{text}: {ours.schema[number].dataType}"
        for number, text in enumerate(EXPRESSIONS)
        if ours.schema[number].dataType != theirs.schema[number].dataType
    ]
    for one, other in zip(ours.collect(), theirs.collect(), strict=True):
        wrong += [
            f"{text}: {one[number]!r}, not {other[number]!r}"
            for number, text in enumerate(EXPRESSIONS)
            if one[number] != other[number]
        ]
    if wrong:
        pytest.fail("\n".join(wrong))
