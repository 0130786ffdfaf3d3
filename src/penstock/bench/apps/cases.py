"""The apps that are measured: views over one stream, alike or different, and chains of views."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

ALIKE, DIFFERENT, CHAIN = "alike", "different", "chain"

APP, STREAM, TABLE, PARTITIONS = "many", "orders", "customers", 2
SCHEMA = "id long, customer string, shop string, item string, amount double, at timestamp"
TABLE_SCHEMA = "id string, country string"
FLINK_TYPES = {
    STREAM: "id BIGINT, customer STRING, shop STRING, item STRING, amount DOUBLE, "
    "`at` TIMESTAMP_LTZ(3), WATERMARK FOR `at` AS `at` - INTERVAL '1' SECOND",
    TABLE: "id STRING, country STRING",
}

_TUMBLE = "TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' MINUTE)"
_FLINK_TUMBLE = "TABLE(TUMBLE(TABLE orders, DESCRIPTOR(`at`), INTERVAL '1' MINUTE))"


class View(NamedTuple):
    """`columns` are those of its result, with the types that Flink SQL gives them."""

    name: str
    sql: str
    columns: str
    key: str = ""

    @property
    def flink(self) -> str:
        return self.sql.replace(_TUMBLE, _FLINK_TUMBLE)


class Kind(NamedTuple):
    """A query with a place for a number, which makes one out of it that no other equals."""

    sql: str
    columns: str
    key: str = ""


# The rows of the last view of every app: what an order changes is seen in it at once.
_LAST = "customer STRING, total DOUBLE, `last` BIGINT"
_PLAIN = Kind(
    "SELECT customer, sum(amount) AS total, max(id) AS last FROM orders "
    "WHERE amount > {number} GROUP BY customer",
    _LAST,
)
KINDS = (
    Kind(
        "SELECT shop, count(*) AS n, avg(amount) AS mean FROM orders "
        "WHERE amount > {number} GROUP BY shop",
        "shop STRING, n BIGINT, mean DOUBLE",
    ),
    Kind(
        "SELECT item, min(amount) AS least, max(amount) AS most FROM orders "
        "WHERE amount > {number} GROUP BY item",
        "item STRING, least DOUBLE, most DOUBLE",
    ),
    Kind(
        "SELECT shop, count(DISTINCT customer) AS buyers FROM orders "
        "WHERE amount > {number} GROUP BY shop",
        "shop STRING, buyers BIGINT",
    ),
    Kind(
        "SELECT country, sum(amount) AS total, count(*) AS n FROM orders "
        "JOIN customers ON orders.customer = customers.id "
        "WHERE amount > {number} GROUP BY country",
        "country STRING, total DOUBLE, n BIGINT",
    ),
    Kind(
        "SELECT id, customer, amount FROM orders "
        "WHERE amount > {number} ORDER BY amount DESC, id LIMIT 10",
        "id BIGINT, customer STRING, amount DOUBLE",
        "id",
    ),
    Kind(
        "SELECT shop, window_start, window_end, sum(amount) AS total "
        f"FROM {_TUMBLE} WHERE amount > {{number}} GROUP BY shop, window_start, window_end",
        "shop STRING, window_start TIMESTAMP(3), window_end TIMESTAMP(3), total DOUBLE",
    ),
    Kind(
        "SELECT shop, item, sum(amount) AS total, count(*) AS n FROM orders "
        "WHERE amount > {number} GROUP BY shop, item",
        "shop STRING, item STRING, total DOUBLE, n BIGINT",
    ),
    Kind(
        "SELECT item, avg(amount) AS mean, count(DISTINCT shop) AS shops, max(amount) AS most "
        "FROM orders WHERE amount > {number} GROUP BY item",
        "item STRING, mean DOUBLE, shops BIGINT, most DOUBLE",
    ),
    _PLAIN,
)


@dataclass(frozen=True)
class Case:
    """An app. In its last view `total` of a customer is the sum of the amounts above `above`,
    which may be -1, plus `added`; `last` is the highest id among them."""

    name: str
    family: str
    views: tuple[View, ...]
    above: int
    added: int

    @property
    def tables(self) -> tuple[str, ...]:
        """What is read beside the stream."""
        return (TABLE,) if any(f"JOIN {TABLE}" in each.sql for each in self.views) else ()

    @property
    def last(self) -> str:
        return self.views[-1].name

    def program(self) -> str:
        """The file for `penstock run`, whose data are in the folder that it is started in."""
        lines = [
            "import penstock as ps",
            "",
            f'app = ps.App("{APP}", data="data")',
            'time = ps.EventTime("at", wait="1s")',
            f'app.stream("{STREAM}", "{SCHEMA}", event_time=time, partitions={PARTITIONS})',
            *(
                f'app.table("{each}", "{TABLE_SCHEMA}", key="id", partitions=1)'
                for each in self.tables
            ),
        ]
        for view in self.views:
            key = f', key="{view.key}"' if view.key else ""
            lines.append(f'app.view("{view.name}", sql="{view.sql}"{key})')
        return "\n".join(lines) + "\n"


def alike(count: int) -> Case:
    """The same aggregates again and again, with another number added: an engine may share them."""
    views = (View(f"v{number}", _totals(number), _LAST) for number in range(count))
    return Case(f"{count} {ALIKE}", ALIKE, tuple(views), above=-1, added=count - 1)


def different(count: int) -> Case:
    """No two of the same rows: grouping, aggregates, join, top-N and window change from view to
    view, the filter with every one."""
    kinds = [KINDS[number % len(KINDS)] for number in range(count - 1)] + [_PLAIN]
    views = (
        View(f"v{number}", kind.sql.format(number=number), kind.columns, kind.key)
        for number, kind in enumerate(kinds)
    )
    return Case(f"{count} {DIFFERENT}", DIFFERENT, tuple(views), above=count - 1, added=0)


def chain(count: int) -> Case:
    """Each view reads the one before."""
    views = [View("v0", _totals(0), _LAST)]
    for number in range(1, count):
        sql = f"SELECT customer, total + 1 AS total, last FROM v{number - 1}"
        views.append(View(f"v{number}", sql, _LAST, "customer"))
    return Case(f"{CHAIN} of {count}", CHAIN, tuple(views), above=-1, added=count - 1)


def _totals(number: int) -> str:
    return (
        f"SELECT customer, sum(amount) + {number} AS total, max(id) AS last FROM orders "
        "GROUP BY customer"
    )


def all_cases(views: Sequence[int], chains: Sequence[int]) -> list[Case]:
    families: list[tuple[Callable[[int], Case], Sequence[int]]] = [
        (alike, views),
        (different, views),
        (chain, chains),
    ]
    return [make(count) for make, counts in families for count in counts]
