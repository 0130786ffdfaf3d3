"""Which nodes of a running app are taken anew from its file, and what stands against it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import AppError
from penstock.runtime.app import App
from penstock.runtime.renewal import affected, with_nodes_of

Change = Callable[[App], None]


def shop(**sql: str) -> App:
    """An app of views; with "" one is left out."""
    app = App("shop")
    app.stream("orders", "id long, customer string, amount double")
    app.stream("clicks", "id long, customer string")
    statements = {
        "counts": "SELECT customer, count(*) AS n FROM orders GROUP BY customer",
        "sizes": "SELECT n, count(*) AS customers FROM counts GROUP BY n",
        "visits": "SELECT customer, count(*) AS n FROM clicks GROUP BY customer",
    }
    for name, text in (statements | sql).items():
        if text:
            app.view(name, sql=text)
    return app


@pytest.mark.parametrize(
    ("sql", "asked", "found"),
    [
        ({}, ["sizes"], {"sizes"}),
        ({}, ["counts"], {"counts", "sizes"}),
        ({}, ["visits", "sizes"], {"visits", "sizes"}),
        # One that reads it as the app is, or as it is going to be.
        ({"sizes": ""}, ["counts"], {"counts", "sizes"}),
        ({"sizes": "SELECT n, count(*) AS c FROM visits GROUP BY n"}, ["counts"], None),
        ({"sizes": "SELECT n, count(*) AS c FROM visits GROUP BY n"}, ["visits"], None),
        # One that is added, and what it needs that is added too.
        ({"many": "SELECT customer FROM counts WHERE n > 9"}, ["many"], {"many"}),
        (
            {
                "paid": "SELECT id, customer FROM orders WHERE amount > 0",
                "sizes": "SELECT customer, count(*) AS n FROM paid GROUP BY customer",
            },
            ["sizes"],
            {"paid", "sizes"},
        ),
    ],
)
def test_which_nodes_are_affected(
    sql: dict[str, str], asked: list[str], found: set[str] | None
) -> None:
    expected = {*asked, "sizes"} if found is None else found
    assert affected(shop(), shop(**sql), asked) == expected


def test_who_reads_what_a_node_rejects_is_affected() -> None:
    app = shop()
    app.rejected("counts")

    @app.derive("wrong")
    def wrong(rejected_counts: Any) -> Any: ...

    assert affected(app, shop(), ["counts"]) == {"counts", "sizes", "wrong"}
    assert affected(shop(), app, ["counts"]) == {"counts", "sizes", "wrong"}
    assert "wrong" in with_nodes_of(shop(), app, {"counts", "sizes", "wrong"}).nodes


def test_others_stay_what_they_are() -> None:
    app = shop()
    fresh = shop(
        counts="SELECT customer, sum(amount) AS n FROM orders GROUP BY customer",
        visits="SELECT customer FROM clicks",
    )
    merged = with_nodes_of(app, fresh, {"counts", "sizes"})
    assert merged.nodes["counts"] is fresh.nodes["counts"]
    assert merged.declared["counts"] is fresh.nodes["counts"]
    assert merged.nodes["visits"] is merged.declared["visits"] is app.nodes["visits"]
    assert [node.name for node in merged.ordered_nodes()].index("counts") < 2
    assert app.nodes["counts"] is not fresh.nodes["counts"], "it is another app"


def test_what_reads_it_and_is_no_more_leaves() -> None:
    merged = with_nodes_of(shop(), shop(sizes=""), {"counts", "sizes"})
    assert set(merged.nodes) == {"counts", "visits"}
    assert "sizes" not in merged.declared


def other_stream(name: str) -> App:
    fresh = shop()
    del fresh.declared[name]
    fresh.stream(name, "id string, customer string, amount double")
    return fresh


def test_a_stream_may_change_with_all_that_read_it() -> None:
    merged = with_nodes_of(shop(), other_stream("orders"), {"counts", "sizes"})
    changed: Any = merged.declared["orders"]
    assert str(changed.schema.field("id").type) == "string"
    merged = with_nodes_of(shop(), other_stream("orders"), {"visits"})
    kept: Any = merged.declared["orders"]
    assert str(kept.schema.field("id").type) == "int64", "nobody asked for that"


def test_a_stream_that_others_go_on_reading_may_not() -> None:
    with_another: dict[str, str] = {"more": "SELECT id FROM orders"}
    app, fresh = shop(**with_another), other_stream("orders")
    with pytest.raises(AppError, match="'orders' is not what it was, and more reads it") as refused:
        with_nodes_of(app, fresh, {"counts", "sizes"})
    assert "penstock rebuild counts sizes" in refused.value.hint


def test_rejected_rows_are_of_the_stream() -> None:
    app, fresh = shop(), other_stream("orders")
    for each in (app, fresh):
        each.rejected("orders")

        @each.derive("wrong")
        def wrong(rejected_orders: Any) -> Any: ...

    with pytest.raises(AppError, match="wrong reads it too"):
        with_nodes_of(app, fresh, {"counts", "sizes"})


def test_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with_nodes_of(shop(), shop(), {"counts", "sizes"})
    assert list(tmp_path.iterdir()) == []
