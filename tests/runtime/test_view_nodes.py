"""Views as nodes of an app: of tables, of streams, of SQL, and of each other."""

from typing import Any

import pytest

import penstock as ps
from penstock.errors import DuplicateName, InvalidInput, InvalidSql
from penstock.testing import Run

ORDERS = "id long, country string, amount long"


def an_app() -> ps.App:
    app = ps.App("shop")
    app.stream("orders", ORDERS)
    app.table("countries", "country string, name string", key="country")

    @app.view("revenue", key="country", versions="7 days")
    def revenue(orders: Any) -> Any:
        return ps.aggregate(orders, by="country", total=ps.sum("amount"))

    @app.view("latest", key="country")
    def latest(orders: Any) -> Any:
        return orders.select("country", "id")

    @app.view("totals", key="total")
    def totals(revenue: Any) -> Any:
        return ps.aggregate(revenue, by="total", countries=ps.count())

    @app.view("ids", key="id")
    def ids(latest: Any) -> Any:
        return ps.aggregate(latest, by="id", countries=ps.count())

    app.view(
        "named",
        sql="SELECT c.country, c.name, r.total FROM revenue r JOIN countries c "
        "ON r.country = c.country WHERE r.total > 1",
    )
    return app


def order(number: int, country: str, amount: int) -> dict[str, Any]:
    return {"id": number, "country": country, "amount": amount, "_partition": 0}


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_views_of_every_kind() -> None:
    with Run(an_app()) as run:
        run.feed("orders", [order(1, "NL", 2), order(2, "NO", 1), order(3, "NL", 3)])
        run.upsert("countries", country="NL", name="Nederland")
        run.upsert("countries", country="NO", name="Norge")
        run.drain()
        views = run.views
        assert list(views) == ["ids", "latest", "named", "revenue", "totals"]
        assert views["revenue"].get("NL") == {"country": "NL", "total": 5}
        assert list(views["latest"].rows()) == [
            {"country": "NL", "id": 3},
            {"country": "NO", "id": 2},
        ]
        assert views["totals"].get(5) == {"total": 5, "countries": 1}
        assert list(views["named"].rows()) == [{"country": "NL", "name": "Nederland", "total": 5}]

        [position] = run.feed("orders", [order(4, "NO", 4)])
        run.delete("countries", "NL")
        run.drain()
        for view in ("revenue", "latest", "totals", "ids", "named"):
            assert list(views[view].rows()) == run.view(view), "the fold of its topic"
        # Two nodes lie between the stream and these.
        assert views["totals"].get(5, after=position) == {"total": 5, "countries": 2}
        assert views["ids"].get(2, after=position) is None
        assert views["ids"].get(4, after=position) == {"id": 4, "countries": 1}
        assert list(views["named"].rows()) == [{"country": "NO", "name": "Norge", "total": 5}]
        assert views["revenue"].get("NO", as_of="orders/0@2") == {"country": "NO", "total": 1}

        for view in ("totals", "ids"):
            batch = {tuple(row.values()): 0 for row in run.batch(view)}
            assert {tuple(row.values()) for row in run.view(view)} == batch.keys()


def declared(*arguments: Any, **facts: Any) -> Any:
    app = an_app()
    return app.view(*arguments, **facts)(lambda orders: orders)


@pytest.mark.parametrize(
    ("name", "facts", "error", "told"),
    [
        ("revenue", {"key": "x"}, DuplicateName, "two things called 'revenue'"),
        ("Revenue", {"key": "x"}, DuplicateName, "called as another view in SQL"),
        ("revenue_versions", {"key": "x"}, DuplicateName, "called as another view in SQL"),
        ("sqlite_x", {"key": "x"}, InvalidInput, "SQLite's own"),
        ("more", {"key": ()}, InvalidInput, "has no key"),
        ("more", {"key": "x", "versions": "soon"}, InvalidInput, "not a duration"),
        ("more", {"sql": "SELECT"}, InvalidSql, "hint: "),
    ],
)
def test_what_is_refused_at_once(
    name: str, facts: dict[str, Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        declared(name, **facts)


def test_sql_names_what_it_reads() -> None:
    app = an_app()
    assert app.nodes["named"].inputs == ("revenue", "countries")
    assert [node.name for node in app.ordered_nodes()].index("named") > 0
