"""The topics of an app, as it finds or makes them at its start."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

import penstock as ps
from penstock import Log
from penstock.errors import InvalidInput
from penstock.runtime.nodes import Built
from penstock.runtime.topics import ensure_topics

DEFAULT = 7 * 86_400_000


def started(log: Log, *, sort: str = "table") -> None:
    """As at the start of an app with a node that reads `customers`."""
    app = ps.App("shop")
    if sort == "table":
        app.table("customers", "id long, name string", key="id")
    else:
        app.stream("customers", "id long, name string")
    node = SimpleNamespace(inputs=("customers",))
    built = SimpleNamespace(name="copies", node=node, sources=(), output=None)
    ensure_topics(cast(Built, built), app.declared, log)


def test_a_table_whose_topic_a_producer_made_keeps_its_rows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Log.memory() as log:
        log.create("customers", partitions=2)
        assert log.describe("customers").policy.retention_ms == DEFAULT
        started(log)
        assert log.describe("customers").policy.retention_ms == -1
        assert "customers is a table" in caplog.text
        caplog.clear()
        started(log)
        assert not caplog.text


@pytest.mark.parametrize("policy", [{"retention_ms": 3_600_000}, {"retention_bytes": 10_000}])
def test_a_table_whose_topic_somebody_told_to_forget_is_refused(policy: dict[str, Any]) -> None:
    with Log.memory() as log:
        log.create("customers", **policy)
        with pytest.raises(InvalidInput, match="would lose rows") as raised:
            started(log)
        assert "penstock topics alter customers --set retention." in raised.value.hint
        started(log, sort="stream")  # whose rows may go
        found = log.describe("customers").policy
        assert {name: getattr(found, name) for name in policy} == policy
