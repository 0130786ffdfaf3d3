"""Apps that nobody thought of: 2 to 8 nodes over two streams and a table, each reading what is
there already."""

from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import strategies as st
from pyspark.sql import DataFrame

import penstock as ps

ORDER = "id long, customer long, amount long, at timestamp"
CUSTOMER = "id long, region string"


class Made(NamedTuple):
    """What a node gives: its columns besides the key, and whether it is a table."""

    name: str
    key: tuple[str, ...]
    numbers: tuple[str, ...]
    is_table: bool
    is_timed: bool = False


SOURCES = (
    Made("orders", ("customer",), ("id", "amount"), is_table=False, is_timed=True),
    Made("refunds", ("customer",), ("id", "amount"), is_table=False, is_timed=True),
    Made("customers", ("id",), (), is_table=True),
)


@st.composite
def random_apps(draw: st.DrawFn) -> ps.App:
    app = ps.App("random")
    for name in ("orders", "refunds"):
        app.stream(name, ORDER, event_time=ps.EventTime("at", wait="5s", correct_for="1h"))
    app.table("customers", CUSTOMER, key="id")
    known = list(SOURCES)
    for number in range(draw(st.integers(2, 8))):
        kinds = [each for each in KINDS if any(map(each.fits, known))]
        kind = draw(st.sampled_from(kinds))
        of = draw(st.sampled_from([each for each in known if kind.fits(each)]))
        known.append(kind.add(app, f"node{number}", of, draw))
    return app


class Kind(NamedTuple):
    fits: Callable[[Made], bool]
    add: Callable[[ps.App, str, Made, st.DrawFn], Made]


def _is_stream(made: Made) -> bool:
    return not made.is_table and bool(made.numbers)


def _has_numbers(made: Made) -> bool:
    return bool(made.numbers)


def _filtered(app: ps.App, name: str, of: Made, draw: st.DrawFn) -> Made:
    """By an expression that workers evaluate."""
    least, column = draw(st.integers(0, 6)), of.numbers[-1]

    def node(**frames: DataFrame) -> DataFrame:
        return frames[of.name].where(f"{column} % 7 >= {least}")

    _derive(app, name, of, node)
    return of._replace(name=name)


def _through_spark(app: ps.App, name: str, of: Made, draw: st.DrawFn) -> Made:
    """By a function of the user's, so that the rows go through Spark."""

    def node(**frames: DataFrame) -> DataFrame:
        def same(batches: Any) -> Any:
            yield from batches

        frame = frames[of.name]
        return frame.mapInArrow(same, frame.schema)

    _derive(app, name, of, node)
    return of._replace(name=name)


def _aggregated(app: ps.App, name: str, of: Made, draw: st.DrawFn) -> Made:
    column = draw(st.sampled_from(of.numbers))
    asked = draw(st.sampled_from([ps.sum, ps.max, ps.count, ps.distinct]))

    def node(**frames: DataFrame) -> DataFrame:
        return ps.aggregate(frames[of.name], by=list(of.key), value=asked(column), n=ps.count())

    made = Made(name, of.key, ("value", "n"), is_table=True)
    _derive(app, name, of, node, key=of.key)
    return made


def _windowed(app: ps.App, name: str, of: Made, draw: st.DrawFn) -> Made:
    windows: list[Any] = [ps.tumbling("10s"), ps.hopping("20s", "10s"), ps.session("5s")]
    over = draw(st.sampled_from(windows))

    def node(**frames: DataFrame) -> DataFrame:
        return ps.window(frames[of.name], over, by=list(of.key), n=ps.count())

    _derive(app, name, of, node, key=("window", *of.key))
    return Made(name, ("window", *of.key), ("n",), is_table=True)


def _sql(app: ps.App, name: str, of: Made, draw: st.DrawFn) -> Made:
    key, number = ", ".join(f"`{each}`" for each in of.key), draw(st.sampled_from(of.numbers))
    counted = f"count(DISTINCT {number}) AS value, max({number}) AS n"
    statements = [
        f"SELECT {key}, sum({number}) + 1 AS value, count(*) AS n FROM {of.name} GROUP BY {key}",
        f"SELECT {key}, {counted} FROM {of.name} WHERE {number} > 3 GROUP BY {key}",
    ]
    app.view(name, sql=draw(st.sampled_from(statements)))
    return Made(name, of.key, ("value", "n"), is_table=True)


def _joined(app: ps.App, name: str, of: Made, draw: st.DrawFn) -> Made:
    """With the customers, by SQL, and counted by region."""
    how = draw(st.sampled_from(["JOIN", "LEFT JOIN"]))
    app.view(
        name,
        sql=f"SELECT c.region, sum(o.{of.numbers[-1]}) AS value, count(*) AS n FROM {of.name} AS o "
        f"{how} customers AS c ON o.customer = c.id GROUP BY c.region",
    )
    return Made(name, ("region",), ("value", "n"), is_table=True)


def _total(app: ps.App, name: str, of: Made, draw: st.DrawFn) -> Made:
    app.view(name, sql=f"SELECT count(*) AS n, sum({of.numbers[0]}) AS value FROM {of.name}")
    return Made(name, (), (), is_table=True)


def _derive(
    app: ps.App, name: str, of: Made, node: Callable[..., DataFrame], key: tuple[str, ...] = ()
) -> None:
    # A function's parameters name what it reads, so there is one of this name.
    scope: dict[str, Any] = {"node": node}
    exec(f"def function({of.name}): return node({of.name}={of.name})", scope)
    app.derive(name, key=key or (of.key if of.is_table else ()))(scope["function"])


KINDS = (
    Kind(_has_numbers, _filtered),
    Kind(_has_numbers, _through_spark),
    Kind(_has_numbers, _aggregated),
    Kind(lambda made: _is_stream(made) and made.is_timed, _windowed),
    Kind(_has_numbers, _sql),
    Kind(lambda made: _has_numbers(made) and made.key == ("customer",), _joined),
    Kind(_has_numbers, _total),
)
