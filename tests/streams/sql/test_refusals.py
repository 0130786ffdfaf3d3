"""What cannot be a view, with the words that say so: where it stands and what to write instead."""

import pytest

from penstock.errors import InvalidSql
from penstock.streams.sql import plan_view, tables_of
from tests.streams.sql.golden import Case, cases
from tests.streams.sql.shop import TABLES


@pytest.mark.parametrize("case", cases("refused"), ids=str)
def test_a_query_is_refused_with_its_reason(case: Case) -> None:
    with pytest.raises(InvalidSql) as refused:
        plan_view(case.sql, TABLES)
    assert refused.value.hint
    case.expect("result", str(refused.value))


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
