from concurrent.futures import Executor, Future
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.log.storage.journal import REPEAT_AFTER_BYTES, Journal

from .conftest import HeldExecutor


def put(journal: Journal, entries: dict[bytes, bytes | None]) -> None:
    durable: Future[None] = Future()
    journal.put(entries, lambda e: durable.set_exception(e) if e else durable.set_result(None))
    durable.result(10)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    st.lists(
        st.dictionaries(
            st.binary(max_size=2), st.none() | st.binary(max_size=20), min_size=1, max_size=4
        ),
        max_size=20,
    )
)
def test_after_a_restart_it_holds_what_the_puts_say(
    tmp_path_factory: pytest.TempPathFactory,
    syncs: Executor,
    puts: list[dict[bytes, bytes | None]],
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    journal = Journal(folder, syncs)
    expected: dict[bytes, bytes] = {}
    for entries in puts:
        put(journal, entries)
        for key, fact in entries.items():
            expected.pop(key, None)
            if fact is not None:
                expected[key] = fact
        assert dict(journal.items()) == expected
    assert dict(Journal(folder, syncs).items()) == expected


def test_done_is_called_after_the_sync_and_not_before(tmp_path: Path, held: HeldExecutor) -> None:
    journal = Journal(tmp_path, held)
    done: list[Exception | None] = []
    journal.put({b"k": b"1"}, done.append)
    assert journal.get(b"k") == b"1"
    assert not done
    held.run()
    assert done == [None]


def test_it_stays_small_however_often_a_fact_changes(tmp_path: Path, syncs: Executor) -> None:
    journal = Journal(tmp_path, syncs)
    journal.put({b"old": b"stays"})
    for n in range(4000):
        journal.put({b"k%d" % (n % 10): b"%05d" % n * 200})
    put(journal, {b"last": b"one"})
    facts = dict(journal.items())
    journal.close()
    size = sum(path.stat().st_size for path in tmp_path.rglob("*.log"))
    assert size < 4 * REPEAT_AFTER_BYTES
    indexed = {path.stem for path in tmp_path.rglob("*.index")}
    assert indexed <= {path.stem for path in tmp_path.rglob("*.log")}
    again = Journal(tmp_path, syncs)
    assert dict(again.items()) == facts
    assert again.get(b"old") == b"stays"
    assert again.get(b"k9") == b"03999" * 200
