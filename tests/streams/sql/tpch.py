"""The eight tables of TPC-H, tiny: seeded, and with what its queries look for."""

import random
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import duckdb

from penstock.streams.sql import Table

Row = tuple[Any, ...]

SCHEMAS = {
    "region": "r_regionkey int, r_name string",
    "nation": "n_nationkey int, n_name string, n_regionkey int",
    "supplier": "s_suppkey int, s_name string, s_address string, s_nationkey int, s_phone string, "
    "s_acctbal decimal(12;2), s_comment string",
    "part": "p_partkey int, p_name string, p_mfgr string, p_brand string, p_type string, "
    "p_size int, p_container string, p_retailprice decimal(12;2)",
    "partsupp": "ps_partkey int, ps_suppkey int, ps_availqty int, ps_supplycost decimal(12;2)",
    "customer": "c_custkey int, c_name string, c_address string, c_nationkey int, c_phone string, "
    "c_acctbal decimal(12;2), c_mktsegment string, c_comment string",
    "orders": "o_orderkey int, o_custkey int, o_orderstatus string, o_totalprice decimal(12;2), "
    "o_orderdate date, o_orderpriority string, o_shippriority int, o_comment string",
    "lineitem": "l_orderkey int, l_partkey int, l_suppkey int, l_linenumber int, "
    "l_quantity decimal(12;2), l_extendedprice decimal(12;2), l_discount decimal(12;2), "
    "l_tax decimal(12;2), l_returnflag string, l_linestatus string, l_shipdate date, "
    "l_commitdate date, l_receiptdate date, l_shipmode string",
}
COLUMNS = {
    name: dict(part.replace(";", ",").split(" ", 1) for part in text.split(", "))
    for name, text in SCHEMAS.items()
}
TABLES = {name: Table(tuple(columns)) for name, columns in COLUMNS.items()}

_REGIONS = ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"]
_NATIONS = [
    ("ALGERIA", 0), ("BRAZIL", 1), ("CANADA", 1), ("CHINA", 2), ("INDIA", 2), ("FRANCE", 3),
    ("GERMANY", 3), ("SAUDI ARABIA", 4),
]  # fmt: skip
_TYPE_WORDS = [["ECONOMY", "PROMO", "MEDIUM"], ["POLISHED", "PLATED"], ["BRASS", "STEEL"]]
_START = date(1993, 1, 1)


def tables(seed: int = 8, orders: int = 60) -> dict[str, list[Row]]:
    dice = random.Random(seed)
    pick = dice.choice

    def money(low: int, high: int) -> Decimal:
        return Decimal(dice.randint(low * 100, high * 100)) / 100

    found: dict[str, list[Row]] = {name: [] for name in SCHEMAS}
    found["region"] = [(key, name) for key, name in enumerate(_REGIONS)]
    found["nation"] = [(key, name, region) for key, (name, region) in enumerate(_NATIONS)]
    for key in range(1, 13):
        comment = "Customer some Complaints" if key % 5 == 0 else "quiet"
        nation = dice.randrange(len(_NATIONS))
        found["supplier"].append(
            (
                key,
                f"Supplier#{key}",
                f"street {key}",
                nation,
                f"2{nation}-1",
                money(-9, 99),
                comment,
            )
        )
    for key in range(1, 31):
        found["part"].append(
            (
                key,
                f"{pick(['forest', 'green', 'red'])} {pick(['green', 'dark'])} part",
                f"Manufacturer#{key % 3}",
                f"Brand#{pick([12, 23, 34, 45])}",
                " ".join(map(pick, _TYPE_WORDS)),
                pick([1, 2, 3, 5, 9, 14, 23, 36]),
                f"{pick(['SM', 'MED', 'LG'])} {pick(['BOX', 'PKG'])}",
                money(10, 20),
            )
        )
        for supplier in dice.sample(range(1, 13), 3):
            found["partsupp"].append((key, supplier, dice.randint(1, 60), money(1, 9)))
    for key in range(1, 26):
        nation = dice.randrange(len(_NATIONS))
        found["customer"].append(
            (
                key, f"Customer#{key}", f"road {key}", nation,
                f"{pick(['13', '31', '23', '29', '50'])}-{key}", money(-50, 90),
                pick(["BUILDING", "MACHINERY"]), "says nothing",
            )
        )  # fmt: skip
    for key in range(1, orders + 1):
        day = _START + timedelta(days=dice.randrange(1400))
        found["orders"].append(
            (
                key, dice.randint(1, 18), pick("FO"), money(100, 900), day,
                pick(["1-URGENT", "2-HIGH", "3-MEDIUM", "5-LOW"]), 0,
                pick(["special packages requests", "plain", "plain"]),
            )
        )  # fmt: skip
        for line in range(1, dice.randint(1, 5) + 1):
            part, supplier, *_ = pick(found["partsupp"])
            shipped, due, came = (day + timedelta(days=dice.randint(1, 90)) for _ in range(3))
            found["lineitem"].append(
                (
                    key, part, supplier, line, Decimal(dice.randint(1, 50)), money(10, 500),
                    Decimal(dice.randint(0, 10)) / 100, Decimal(dice.randint(0, 8)) / 100,
                    pick("RAN"), pick("OF"), shipped, due, came, pick(["MAIL", "SHIP", "AIR"]),
                )
            )  # fmt: skip
    return found


def database(rows: dict[str, list[Row]]) -> duckdb.DuckDBPyConnection:
    db = duckdb.connect()
    for name, columns in COLUMNS.items():
        kinds = ", ".join(f"{column} {kind}" for column, kind in columns.items())
        db.execute(f"CREATE TABLE {name} ({kinds})")
        if rows.get(name):
            marks = ", ".join("?" * len(columns))
            db.executemany(f"INSERT INTO {name} VALUES ({marks})", rows[name])
    return db
