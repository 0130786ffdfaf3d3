"""Whatever happens to arenas, processes and hosts: the state is what all versions add up to."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.streams.state import BucketState, StateSchema, arena, bucket, chains, clean, durable
from tests.streams.state.hosts import Contents, Host, folded

KEYS = {
    "int": pa.schema({"a": pa.int64()}),
    "text": pa.schema({"a": pa.string()}),
    "several": pa.schema({"a": pa.int8(), "b": pa.string(), "c": pa.list_(pa.float32())}),
}
VALUES = pa.schema(
    {"n": pa.int64(), "text": pa.string(), "more": pa.list_(pa.int16()), "due": pa.int64()}
)

KEY_VALUES: dict[str, list[list[Any]]] = {
    "int": [[i] for i in (None, 0, 1, -1, 2**63 - 1, 7, 8, 9)],
    "text": [[text] for text in (None, "", "a", "b", "ab", "a" * 20, "ä")],
    "several": [
        [a, b, c] for a in (None, 0, 1) for b in (None, "", "x") for c in (None, [], [0.5])
    ],
}

Values = dict[str, list[Any]]  # of each key, as text
NEW = [None, None, None, None]

numbers = st.integers(0, 26)
times = st.integers(-70, 70) | st.integers(-(2**63) + 1, 2**63 - 1)
changes = st.one_of(
    st.tuples(st.just("add up"), st.lists(numbers, max_size=8)),
    st.tuples(st.just("put"), st.lists(st.tuples(numbers, st.integers(0, 40)), max_size=8)),
    st.tuples(st.just("remove"), st.lists(numbers, max_size=8)),
    st.tuples(st.just("clear"), st.none()),
    st.tuples(st.just("fall due"), st.lists(st.tuples(numbers, st.none() | times), max_size=8)),
    st.tuples(st.just("look at due"), times),
    st.tuples(st.just("do what is due"), times),
    st.tuples(st.just("look at groups"), st.lists(numbers, max_size=8)),
)
# With the clock of the commit, and how much higher than the last version its version is.
steps = st.tuples(st.lists(changes, max_size=5), st.none() | times, st.just(1) | st.integers(1, 40))
events = st.one_of(
    st.tuples(st.just("step"), steps),
    st.tuples(st.just("step"), steps),
    st.tuples(st.just("fail"), steps),
    st.tuples(
        st.sampled_from(["again", "move", "lose the arena", "restart", "dirty", "clean", "back"]),
        st.none(),
    ),
)


@dataclass
class Model:
    """The state as a dictionary, and its change by a step; beside it the same on the real one."""

    keys: list[list[Any]]
    schema: StateSchema

    def key(self, number: int) -> list[Any]:
        return self.keys[number % len(self.keys)]

    def batch(self, chosen: list[list[Any]]) -> pa.RecordBatch:
        columns = zip(*chosen, strict=True) if chosen else [[] for _ in self.schema.keys]
        arrays = [pa.array(list(c), f.type) for c, f in zip(columns, self.schema.keys, strict=True)]
        return pa.record_batch(arrays, schema=self.schema.keys)

    def apply(self, contents: Values, change: tuple[str, Any], state: BucketState) -> None:
        what, detail = change
        if what == "clear":
            chosen = [key for key in self.keys if repr(key) in contents]
            contents.clear()
            state.remove(state.find(self.batch(chosen)))
        elif what == "remove":
            chosen = [self.key(number) for number in detail]
            found = state.find(self.batch(chosen))
            assert [row >= 0 for row in found] == [repr(key) in contents for key in chosen]
            state.remove(found[found >= 0])
            for key in chosen:
                contents.pop(repr(key), None)
        elif what == "fall due":
            chosen = [self.key(number) for number, _ in detail]
            dues = pa.array([due for _, due in detail], pa.int64())
            state.put(state.find_or_add(self.batch(chosen)), pa.record_batch({"due": dues}))
            for key, due in zip(chosen, dues.to_pylist(), strict=True):
                contents[repr(key)] = [*contents.get(repr(key), NEW)[:3], due]
        elif what in ("look at due", "do what is due"):
            rows = state.due(detail)
            due = {key: values for key, values in contents.items() if is_due(values[3], detail)}
            found = state.take(rows).select(self.schema.keys.names).to_pylist()
            assert len(found) == len(due)
            assert {repr(list(key.values())) for key in found} == set(due)
            if what == "do what is due":
                state.put(rows, pa.record_batch({"due": pa.nulls(len(rows), pa.int64())}))
                for key, values in due.items():
                    contents[key] = [*values[:3], None]
        elif what == "look at groups":
            asked = [self.key(number) for number in detail]
            members = [
                (int(each), repr(list(key.values())))
                for which, rows in state.members(self.batch(asked))
                for each, key in zip(which, state.take_keys(rows).to_pylist(), strict=True)
            ]
            counts = np.bincount([which for which, _ in members], minlength=len(asked))
            assert state.member_counts(self.batch(asked)).tolist() == counts.tolist()
            assert sorted(members) == sorted(
                (which, repr(key))
                for which, group in enumerate(asked)
                for key in self.keys
                if repr(key) in contents and key[:1] == group[:1]
            )
        elif what == "add up":
            chosen = [self.key(number) for number in detail]
            found = state.find_or_add(self.batch(chosen))
            np.add.at(state.fixed("n"), found, 1)
            state.valid("n")[found] = True
            for key in chosen:
                n, *others = contents.get(repr(key), NEW)
                contents[repr(key)] = [(n or 0) + 1, *others]
        else:
            chosen = [self.key(number) for number, _ in detail]
            sizes = [size for _, size in detail]
            texts = [None if size % 7 == 0 else "t" * size for size in sizes]
            lists = [None if size % 5 == 0 else [size, None] * (size % 3) for size in sizes]
            found = state.find_or_add(self.batch(chosen))
            state.put(
                found,
                pa.record_batch(
                    [pa.array(texts, VALUES[1].type), pa.array(lists, VALUES[2].type)],
                    VALUES.names[1:3],
                ),
            )
            for key, text, numbers in zip(chosen, texts, lists, strict=True):
                n, *_, due = contents.get(repr(key), NEW)
                contents[repr(key)] = [n, text, numbers, due]


def is_due(due: int | None, clock: int) -> bool:
    return due is not None and due <= clock


@pytest.mark.parametrize("kind", KEYS)
@settings(max_examples=40)
@given(happenings=st.lists(events, max_size=14))
def test_the_state_is_what_all_versions_add_up_to(
    kind: str, happenings: list[tuple[str, Any]]
) -> None:
    model = Model(KEY_VALUES[kind], StateSchema(KEYS[kind], VALUES, due="due", grouped=1))
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        # So that a few rows are enough for bases, and for arenas that are packed anew.
        patch.setattr(bucket, "WHOLE_ROWS", 3)
        patch.setattr(durable, "_LEAST_WEIGHT", 0)
        patch.setattr(durable, "_FILE_WEIGHT", 0)
        patch.setattr(arena, "_SPARE_ROWS", 4)
        patch.setattr(arena, "_SPARE_BYTES", 40)
        patch.setattr(chains, "_PIECE", 2)
        run(model, Path(folder), happenings)


class Done(NamedTuple):
    """A step that was committed."""

    version: int
    detail: Any
    written: tuple[str, bytes]
    result: tuple[Values, int | None]  # the contents, and the clock


def run(model: Model, folder: Path, happenings: list[tuple[str, Any]]) -> None:
    hosts = [Host(folder, model.schema, name=name) for name in ("a", "b")]
    done: list[Done] = []
    given_up: dict[int, int] = {}  # versions that were gone back from, and what they follow
    first_kept = -1  # how many of the steps are too old to be opened

    def last() -> int:
        return done[-1].version if done else -1

    def reached() -> tuple[Values, int | None]:
        return done[-1].result if done else ({}, None)

    def step(detail: Any, *, version: int | None = None, commit: bool = True) -> Done | None:
        changes, clock, more = detail
        before, clock_before = reached()
        contents = dict(before)
        with hosts[0].open(last()) as state:
            assert state.clock == clock_before
            for change in changes:
                model.apply(contents, change, state)
            assert len(state) == len(contents)
            if not commit:
                return None
            if version is None:
                version = last() + more
            state.commit(version, clock)
            given_up.pop(version, None)
            # It never goes back.
            clocks = [each for each in (clock_before, clock) if each is not None]
            assert state.clock == max(clocks, default=None)
            return Done(version, detail, hosts[0].written(version), (contents, state.clock))

    for what, detail in happenings:
        host = hosts[0]
        can_go_back = bool(done) and len(done) - 2 >= first_kept
        if what == "step":
            taken = step(detail)
            assert taken is not None
            done.append(taken)
        elif what == "fail":
            step(detail, commit=False)
        elif what == "again" and can_go_back:
            before = done.pop()
            again = step(before.detail, version=before.version)
            assert again is not None
            assert again.written == before.written
            done.append(again)
        elif what == "move":
            hosts.reverse()
        elif what == "lose the arena":
            host.lose_arena()
        elif what == "restart":
            host.restart_process()
        elif what == "dirty" and host.warm.exists() and (host.arena / "rows").exists():
            np.memmap(host.arena / "rows", np.int64, "r+")[arena._DIRTY] = 1
        elif what == "clean" and len(done) > 2:
            first_kept = max(first_kept, len(done) - 3)
            clean(host.address, "sum", 1, done[-2].version - 1)  # at which the one before was it
        # Of batches, only one at a time is under way and can be given up.
        elif what == "back" and can_go_back and last() not in given_up.values():
            version = done.pop().version
            given_up[version] = last()
        now = texts(reached()[0])
        assert hosts[0].contents(last()) == now
        assert folded((each.written for each in done), model.schema) == now
    shutil.rmtree(folder / "warm-a", ignore_errors=True)
    for each in reversed(done[max(first_kept, 0) :]):
        assert hosts[0].contents(each.version) == texts(each.result[0])


def texts(values: Values) -> Contents:
    return {key: repr(each) for key, each in values.items()}
