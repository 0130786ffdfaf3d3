from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from penstock import Log, Record
from penstock.errors import InvalidInput
from penstock.log import engine
from penstock.testing import wait_until


def test_a_topic_made_again_in_the_same_process_inherits_no_offsets(tmp_path: Path) -> None:
    with Log.open(tmp_path) as log:
        log.create("orders")
        log.append("orders", [Record(value=b"old %d" % n) for n in range(3)])
        log.commit("readers", {("orders", 0): 3})
    with Log.open(tmp_path) as log:
        log.delete("orders")
        log.create("orders")
        log.append("orders", [Record(value=b"new")])
        with log.subscribe("readers", ["orders"]) as records:
            assert [record.value for record in islice(records, 1)] == [b"new"]


def test_closing_twice_after_a_subscription_is_harmless(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    log.create("orders")
    log.append("orders", [Record(value=b"a")])
    with log.subscribe("readers", ["orders"]) as records:
        next(records)
    log.close()
    log.close()
    with Log.open(tmp_path) as again:
        assert again.topics() == ["orders"]


def test_retention_runs_without_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "RETENTION_CHECK_SECONDS", 0.01)
    with Log.open(tmp_path) as log:
        log.create("orders", retention="1 second")
        log.append("orders", [Record(value=b"old", timestamp=1)])
        wait_until(lambda: log.bounds("orders", 0) == (1, 1), within=10, what="retention")
        log.alter("orders", retention="1 hour")
        log.append("orders", [Record(value=b"new")])
        assert [record.value for record in log.read("orders", 0, 1)] == [b"new"]


@pytest.mark.parametrize("wrong", [{"value": "text"}, {"value": b"a", "key": 7}])
def test_content_that_is_not_bytes_is_refused_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="bytes or None"):
        Record(**wrong)


def test_what_is_not_a_record_is_not_appended(tmp_path: Path) -> None:
    with Log.open(tmp_path) as log:
        log.create("orders")
        with pytest.raises(InvalidInput, match="not a Record"):
            log.append("orders", ["text"])  # type: ignore[list-item]
