"""`penstock init`: a small app that works, with its test."""

from pathlib import Path

import click

from penstock.errors import InvalidInput

APP = '''\
"""Orders come in; what the paid ones amount to is kept for each customer."""

import penstock as ps

app = ps.App("shop")

app.stream(
    "orders",
    "id long, customer long, amount double, paid boolean, at timestamp",
    event_time=ps.EventTime("at", wait="10s"),
    partitions=2,
)


@app.derive("paid")
def paid(orders):
    return orders.where("paid")


@app.view("totals", key="customer", versions="7 days")
def totals(paid):
    return ps.aggregate(paid, by="customer", total=ps.sum("amount"), orders=ps.count())


if __name__ == "__main__":
    app.run()
'''

TEST = """\
from app import app
from penstock.testing import Run

ORDERS = [
    {"id": 1, "customer": 7, "amount": 2.5, "paid": True, "at": "2026-01-31T10:00:00Z"},
    {"id": 2, "customer": 7, "amount": 4.0, "paid": True, "at": "2026-01-31T10:00:05Z"},
    {"id": 3, "customer": 8, "amount": 1.0, "paid": False, "at": "2026-01-31T10:00:06Z"},
]


def test_paid_orders_are_added_up_for_each_customer():
    with Run(app) as run:
        run.feed("orders", ORDERS)
        run.drain()
        assert run.view("totals") == [{"customer": 7, "total": 6.5, "orders": 2}]


def test_what_is_no_order_is_rejected_with_the_reason():
    with Run(app) as run:
        run.feed("orders", [b"not an order"])
        run.drain()
        [rejected] = run.rejected("orders")
        assert rejected["reason"] == "unparsable"
"""

ORDERS = """\
{"id": 1, "customer": 7, "amount": 2.5, "paid": true, "at": "2026-01-31T10:00:00Z"}
{"id": 2, "customer": 7, "amount": 4.0, "paid": true, "at": "2026-01-31T10:00:05Z"}
{"id": 3, "customer": 8, "amount": 1.0, "paid": false, "at": "2026-01-31T10:00:06Z"}
"""

README = """\
# shop

Orders come in; what the paid ones amount to is kept for each customer.

```console
$ pytest
$ penstock run app.py
```

and in another terminal:

```console
$ penstock produce orders orders.jsonl --key-field customer
$ penstock query "select * from totals"
$ penstock status
$ penstock why totals
```

`app.py` is the app, `test_app.py` its test, `orders.jsonl` some orders to begin with. Log and state
are in `penstock-data`, which can be deleted to start afresh.
"""

FILES = {"app.py": APP, "test_app.py": TEST, "orders.jsonl": ORDERS, "README.md": README}


@click.command()
@click.argument(
    "folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path, file_okay=False)
)
def command(folder: Path) -> None:
    """Write a small working app, its test and some orders into DIR, or here.

    Nothing that is there is written over.

    \b
    Example:
      penstock init shop
    """
    if there := [name for name in FILES if (folder / name).exists()]:
        raise InvalidInput(
            f"there is {_listed(there)} in {folder} already", hint="choose another folder"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in FILES.items():
            (folder / name).write_text(content)
    except OSError as error:
        raise InvalidInput(
            f"{folder} cannot be written to: {error.strerror}", hint="choose another folder"
        ) from None
    here = "" if folder == Path() else f"cd {folder} && "
    click.echo(f"wrote {_listed(list(FILES))}{'' if not here else f' to {folder}'}; next:")
    click.echo(f"  {here}pytest")
    click.echo(f"  {here}penstock run app.py")
    click.echo(f"  {here}penstock produce orders orders.jsonl    # in another terminal")


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
