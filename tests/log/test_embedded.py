from itertools import islice
from pathlib import Path

from penstock import Log, Record


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
