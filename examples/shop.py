"""A shop: orders come in, the large ones are picked out, revenue by city is kept up to date, the
cities that sell most are a view on that, and the pace at which orders come is measured by the time
at which they happened.

    penstock run examples/shop.py

Orders are JSON in the topic `orders`: {"number": 1, "city": "Nara", "amount": 12, "at": "..."}.
"""

import os

from pyspark.sql import DataFrame

import penstock as ps

app = ps.App("shop", data=os.environ.get("SHOP_DATA", "penstock-data"))

app.stream(
    "orders",
    "number long, city string, amount long, at timestamp",
    event_time=ps.EventTime("at", wait="2s", idle_after="2s"),  # a city may have no orders
    partitions=4,
)


@app.derive("large")
def large(orders: DataFrame) -> DataFrame:
    return orders.where("amount >= 100")


@app.view("revenue", key="city")
def revenue(orders: DataFrame) -> DataFrame:
    return ps.aggregate(
        orders, by="city", total=ps.sum("amount"), orders=ps.count(), largest=ps.max("amount")
    )


app.view("best", sql="SELECT city, total FROM revenue ORDER BY total DESC LIMIT 3")


@app.derive("pace", key="window")
def pace(orders: DataFrame) -> DataFrame:
    return ps.rate(orders, ps.tumbling("2s"))


if __name__ == "__main__":
    app.run()
