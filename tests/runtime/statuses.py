"""Statuses of an app as its process would have written them."""

from dataclasses import replace
from typing import Any

from penstock.runtime.status import AppStatus, InputStatus, NodeStatus

NOW = 1_769_853_731_000  # 2026-01-31T10:02:11Z, in milliseconds
MINUTE = 60_000
TEN = 1_769_853_600_000_000  # 2026-01-31T10:00:00Z, in microseconds


def an_input(**facts: Any) -> InputStatus:
    whole = InputStatus(
        "orders",
        "orders",
        clock=TEN,
        timed=True,
        next={"0": 500, "1": 500},
        end={"0": 500, "1": 500},
        clocks={"0": TEN, "1": TEN},
        read=1_000,
        kept=1_000,
        moved_ms=NOW - 4 * MINUTE,
        source={"event_time": '{"column": "at", "wait": 10000000, "guard": 86400000000}'},
    )
    return replace(whole, **facts)


def a_node(*inputs: InputStatus, **facts: Any) -> NodeStatus:
    whole = NodeStatus(
        "totals",
        "waiting",
        since_ms=NOW - 12_000,
        batch=41,
        batch_ms=850,
        rows_per_second=1_500.0,
        inputs=list(inputs) or [an_input()],
        output="totals",
    )
    return replace(whole, **facts)


def an_app(*nodes: NodeStatus, **facts: Any) -> AppStatus:
    whole = AppStatus("shop", 4711, NOW - 90 * MINUTE, NOW - 1_000, list(nodes) or [a_node()])
    return replace(whole, **facts)
