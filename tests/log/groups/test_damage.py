"""A log whose groups' journal is damaged still opens, and the groups that can be read are there."""

from pathlib import Path

import pytest

from penstock import Log, Record
from penstock.log.groups.stored import group_key, offset_key
from penstock.log.storage.journal import UNREADABLE_FILE
from tests.log.server.served import Served


def filled(folder: Path) -> None:
    with Served(folder) as served, Log.connect(served.address) as log:
        log.create("orders")
        log.append("orders", [Record(value=b"%d" % n) for n in range(9)])
        for number, group in enumerate(["one", "two", "three"], 1):
            log.commit(group, {("orders", 0): number})


def committed(served: Served) -> dict[str, int]:
    offsets = served.server.broker.groups.offsets
    return {
        group: found.offset
        for group in ("one", "two", "three")
        if (found := offsets.get(group, "orders", 0))
    }


def test_other_groups_are_unharmed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    filled(tmp_path)
    (segment,) = (tmp_path / "journal").glob("*.log")
    content = bytearray(segment.read_bytes())
    content[content.index(b'"two"')] ^= 1
    segment.write_bytes(content)
    with Served(tmp_path) as served:
        assert committed(served) == {"one": 1, "three": 3}
        counts = served.server.broker.counts
        assert counts["groups: damaged places in the journal"] == 1
        with Log.connect(served.address) as log:
            assert len(list(log.read("orders", 0, 0))) == 9
            log.commit("two", {("orders", 0): 7})
        assert committed(served) == {"one": 1, "two": 7, "three": 3}
    assert "the journal of the groups is damaged" in caplog.text
    assert f"{segment.name}.damaged" in caplog.text
    with Served(tmp_path) as served:
        assert committed(served) == {"one": 1, "two": 7, "three": 3}
        assert not served.server.broker.counts


@pytest.mark.parametrize(
    ("key", "fact"),
    [
        (b"no key", b"1"),
        (group_key("two"), b"{}"),
        (group_key("two"), b'{"version": 1, "generation": 1'),
        (offset_key("two", ("orders", 0)), b"\xff"),
        (offset_key("two", ("orders", 0)), b"[1, 2, 3, 4, 5, 6, 7]"),
    ],
)
def test_what_is_no_fact_of_a_group(tmp_path: Path, key: bytes, fact: bytes) -> None:
    filled(tmp_path)
    with Served(tmp_path) as served:
        served.engine.journal.put({key: fact})
    with Served(tmp_path) as served:
        assert {"one": 1, "three": 3}.items() <= committed(served).items()
        assert served.server.broker.counts["groups: unreadable facts in the journal"] == 1
    assert len((tmp_path / "journal" / UNREADABLE_FILE).read_text().splitlines()) == 1
    with Served(tmp_path) as served:
        assert {"one": 1, "three": 3}.items() <= committed(served).items()
        assert not served.server.broker.counts
