"""Plans of queries as golden texts, and what they give: the same as DuckDB of the query itself."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings

from penstock.streams.sql import Table, explain, plan_view
from tests.streams.sql import shop, tpch
from tests.streams.sql.duck import plan_sql, rows_of, translated
from tests.streams.sql.golden import Case, cases, table

FILES = ("rows", "joins", "aggregates", "subqueries", "sets", "tops", "windows", "mixed")
SHOP = [case for file in FILES for case in cases(file)]


@pytest.fixture(scope="module")
def small_shop() -> duckdb.DuckDBPyConnection:
    return shop.database(shop.ROWS)


@pytest.fixture(scope="module")
def small_tpch() -> duckdb.DuckDBPyConnection:
    return tpch.database(tpch.tables())


@pytest.mark.parametrize("case", SHOP, ids=str)
def test_a_query_has_its_plan_and_its_result(
    case: Case, small_shop: duckdb.DuckDBPyConnection
) -> None:
    check(case, small_shop, shop.TABLES)


@pytest.mark.parametrize("case", cases("tpch"), ids=str)
def test_tpch(case: Case, small_tpch: duckdb.DuckDBPyConnection) -> None:
    check(case, small_tpch, tpch.TABLES)
    assert case.parts["result"].count("\n") >= 1


def check(case: Case, db: duckdb.DuckDBPyConnection, tables: Mapping[str, Table]) -> None:
    view = plan_view(case.sql, tables)
    case.expect("plan", explain(view))
    oracle = rows_of(db, case.parts.get("oracle") or translated(case.sql))
    case.expect("result", table(view.names, oracle))
    assert table(view.names, rows_of(db, plan_sql(view.plan))) == case.parts["result"]


@settings(max_examples=8, phases=[each for each in settings().phases if each.name != "shrink"])
@given(rows=shop.any_rows())
def test_plans_give_what_the_query_gives_of_any_rows(rows: dict[str, list[Any]]) -> None:
    db = shop.database(rows)
    for case, by_plan, asked in prepared():
        assert table([], rows_of(db, by_plan)) == table([], rows_of(db, asked)), case


@cache
def prepared() -> list[tuple[Case, str, str]]:
    """The queries of the shop, by their plans and as they are, for DuckDB."""
    return [
        (
            case,
            plan_sql(plan_view(case.sql, shop.TABLES).plan),
            case.parts.get("oracle") or translated(case.sql),
        )
        for case in SHOP
    ]
