"""What cannot be a view, with the words that say so: where it stands and what to write instead."""

import pytest

from penstock.errors import InvalidSql
from penstock.streams.sql import Table, plan_view, tables_of
from tests.streams.sql.golden import Case, cases
from tests.streams.sql.shop import TABLES


@pytest.mark.parametrize("case", cases("refused"), ids=str)
def test_a_query_is_refused_with_its_reason(case: Case) -> None:
    with pytest.raises(InvalidSql) as refused:
        plan_view(case.sql, TABLES)
    assert refused.value.hint
    case.expect("result", str(refused.value))


@pytest.mark.parametrize(
    "call",
    [
        "curdate()", "current_catalog()", "current_database()", "current_date",
        "current_datetime()", "current_schema()", "current_time()", "current_timestamp",
        "current_timezone()", "current_user", "current_version()", "getdate()",
        "input_file_block_length()", "input_file_block_start()", "input_file_name()",
        "java_method('a', 'b')", "localtime()", "localtimestamp()",
        "monotonically_increasing_id()", "now()", "rand(1)", "randn()", "random()", "randstr(3)",
        "reflect('a', 'b')", "session_user()", "shuffle(array(id))", "spark_partition_id()",
        "sysdate()", "to_unix_timestamp()", "try_reflect('a', 'b')", "uniform(1, 2)",
        "unix_timestamp()", "user()", "uuid()", "version()",
    ],
)  # fmt: skip
def test_a_function_that_changes_by_itself_is_refused(call: str) -> None:
    with pytest.raises(InvalidSql, match="gives another answer each time") as refused:
        plan_view(f"SELECT id FROM orders WHERE length({call}) > 1", TABLES)
    assert _underlined(refused.value) == call.partition("(")[0]


@pytest.mark.parametrize(
    "call",
    [
        "explode(array(id))", "explode_outer(array(id))", "inline(array(struct(id)))",
        "inline_outer(array(struct(id)))", "json_tuple('{}', 'a')", "posexplode(array(id))",
        "posexplode_outer(array(id))", "stack(2, id, id)", "unnest(array(id))",
        "variant_explode(id)", "variant_explode_outer(id)",
    ],
)  # fmt: skip
def test_a_function_that_makes_several_rows_is_refused(call: str) -> None:
    with pytest.raises(InvalidSql, match="this makes several rows of one") as refused:
        plan_view(f"SELECT {call} AS x FROM orders", TABLES)
    assert _underlined(refused.value) == call.partition("(")[0]


def _underlined(error: InvalidSql) -> str:
    _, line, marks, *_ = str(error).splitlines()
    return line[marks.index("^") : len(marks)]


def test_tables_of_a_query() -> None:
    text = """
        WITH big AS (SELECT id FROM orders),
             bigger AS (SELECT id FROM big JOIN Customers USING (id))
        SELECT id FROM bigger WHERE id IN (SELECT customer FROM blocked)
        UNION ALL SELECT id FROM big
    """
    assert tables_of(text) == ("orders", "Customers", "blocked")


def test_a_name_of_with_hides_a_table_only_after_it() -> None:
    assert tables_of("WITH orders AS (SELECT id FROM orders) SELECT id FROM orders") == ("orders",)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("SELECT country, count(*) AS n FROM customers GROUP BY country", ("country",)),
        ("SELECT count(*) AS n FROM customers GROUP BY country", ()),
        ("SELECT name, id FROM customers WHERE id > 1", ("id",)),
        ("SELECT name FROM customers", ()),
        ("SELECT DISTINCT name, country FROM customers", ("name", "country")),
        ("SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer = c.id", ("id",)),
        ("SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.id", ("id",)),
        ("SELECT o.id, c.id AS c FROM orders o FULL JOIN customers c ON o.customer = c.id", ()),
        (
            "SELECT o.id, c.id AS c FROM orders o JOIN customers c ON o.amount = c.id + 1",
            ("id", "c"),
        ),
        ("SELECT customer FROM (SELECT c.id AS customer FROM customers c)", ("customer",)),
        ("SELECT id FROM orders UNION ALL SELECT id FROM customers", ()),
        (
            "SELECT window.start, count(*) AS n FROM orders GROUP BY window(at, '1 hour')",
            ("start",),
        ),
        ("SELECT id, amount FROM orders ORDER BY amount LIMIT 3", ("id",)),
    ],
)
def test_columns_that_identify_a_row(text: str, key: tuple[str, ...]) -> None:
    assert plan_view(text, TABLES).key == key


HOURS = "SELECT window AS w, rider, count(*) AS n FROM rides GROUP BY window(at, '1 hour'), rider"
SESSIONS = HOURS.replace("window", "session_window")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("SELECT trip.start AS s, count(*) AS n FROM rides GROUP BY trip", ()),
        ("SELECT trip, trip.start AS s, count(*) AS n FROM rides GROUP BY trip", ("trip",)),
        (f"SELECT w.start AS s, rider, n FROM ({HOURS})", ("s", "rider")),
        (f"SELECT w.start AS s, sum(n) AS n FROM ({HOURS}) GROUP BY w", ("s",)),
        (f"SELECT w.start AS s, rider, n FROM ({SESSIONS})", ("s", "rider")),
        # Sessions of two riders that begin together may end apart.
        (f"SELECT w.start AS s, sum(n) AS n FROM ({SESSIONS}) GROUP BY w", ()),
        (
            "SELECT id, window_start FROM TUMBLE(TABLE rides, DESCRIPTOR(at), INTERVAL '1' HOUR)",
            ("id", "window_start"),
        ),
    ],
)
def test_the_start_of_a_window_identifies_it_and_that_of_no_other_struct(
    text: str, key: tuple[str, ...]
) -> None:
    rides = Table(("id", "rider", "trip", "at"), ("id",))
    assert plan_view(text, {"rides": rides}).key == key


def test_a_query_that_is_nested_too_deeply() -> None:
    with pytest.raises(InvalidSql, match="nested too deeply"):
        tables_of(f"SELECT {'(' * 5_000}1{')' * 5_000} AS one FROM orders")
