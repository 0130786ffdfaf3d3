from itertools import pairwise
from typing import Any

import pytest

from penstock.errors import CyclicNodes, DuplicateName, InvalidInput, InvalidTopic, UnknownName
from penstock.events.schema import parse_schema
from penstock.runtime.declarations import Declaration, Derivation, Topic
from penstock.runtime.graph import check_name, check_topics, downstream, in_order, parameters_of


def node(name: str, *inputs: str) -> Derivation:
    return Derivation(name, lambda: None, inputs, name)  # type: ignore[arg-type, return-value]


def graph(**inputs: str) -> dict[str, Derivation]:
    return {name: node(name, *text.split()) for name, text in inputs.items()}


def declared(nodes: dict[str, Derivation], *streams: str) -> dict[str, Declaration]:
    return {**{name: node(name) for name in streams}, **nodes}


def test_every_node_comes_after_those_it_reads() -> None:
    nodes = graph(d="b c", c="a orders", b="a", a="orders")
    order = [each.name for each in in_order(nodes, declared(nodes, "orders"))]
    assert sorted(order) == ["a", "b", "c", "d"]
    for each in nodes.values():
        for name in each.inputs:
            if name in nodes:
                assert order.index(name) < order.index(each.name)


def test_a_cycle_is_drawn() -> None:
    nodes = graph(a="c", b="a", c="b")
    with pytest.raises(CyclicNodes) as refused:
        in_order(nodes, declared(nodes))
    steps = refused.value.message.rpartition(": ")[2].split(" -> ")
    assert steps[0] == steps[-1]
    assert set(steps) == {"a", "b", "c"}
    assert all(above in nodes[below].inputs for below, above in pairwise(steps))


def test_an_unknown_name_comes_with_the_nearest() -> None:
    nodes = graph(totals="order")
    with pytest.raises(UnknownName, match="node 'totals' asks for 'order'") as refused:
        in_order(nodes, declared(nodes, "orders"))
    assert refused.value.hint == "did you mean 'orders'?"
    nodes = graph(totals="zzz")
    with pytest.raises(UnknownName) as refused:
        in_order(nodes, declared(nodes, "orders"))
    assert refused.value.hint == "it has: orders, totals"


def test_downstream_is_all_that_hangs_on_a_node() -> None:
    nodes = graph(a="orders", b="a", c="b", d="c a", e="orders")
    assert downstream(nodes, "a") == {"b", "c", "d"}
    assert downstream(nodes, "orders") == {"a", "b", "c", "d", "e"}
    assert downstream(nodes, "d") == set()


def test_parameters_without_a_default_are_inputs() -> None:
    def function(orders: Any, customers: Any, limit: int = 3, *, rates: Any) -> Any: ...

    assert parameters_of(function, "x") == ("orders", "customers", "rates")


def test_functions_that_name_no_stream_are_refused() -> None:
    def all_of_them(*orders: Any) -> Any: ...
    def nothing() -> Any: ...

    with pytest.raises(InvalidInput, match=r"takes \*orders, which names no stream"):
        parameters_of(all_of_them, "x")
    with pytest.raises(InvalidInput, match="reads nothing"):
        parameters_of(nothing, "x")


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("a b", InvalidTopic),
        ("a-b", InvalidInput),
        ("1st", InvalidInput),
        ("orders", DuplicateName),
    ],
)
def test_names_that_cannot_be(name: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        check_name(name, ["orders"])


def test_a_name_that_can_be() -> None:
    check_name("orders_2", ["orders"])


def test_what_a_node_writes_is_a_topic_of_its_own() -> None:
    orders = Topic("orders", "orders", parse_schema("id long"))
    clean = Derivation("clean", lambda orders: orders, ("orders",), "orders")
    twice = Derivation("twice", lambda orders: orders, ("orders",), "clean")

    check_topics({"orders": orders, "again": Topic("again", "orders", orders.schema)})
    with pytest.raises(DuplicateName, match="'orders' and 'clean' both have the topic 'orders'"):
        check_topics({"orders": orders, "clean": clean})
    one = Derivation("one", lambda orders: orders, ("orders",), "clean")
    with pytest.raises(DuplicateName, match="'one' and 'twice' both"):
        check_topics({"orders": orders, "one": one, "twice": twice})
