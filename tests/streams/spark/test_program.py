"""Splitting a program into parts that need nothing of each other."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.spark.query.program import (
    Operator,
    Program,
    Taker,
    ToOperator,
    ToSpark,
    ToTopic,
)

SOURCES = 2


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Operators that take rows of sources and of operators before them, and write to topics."""
    program = Program(2, "", "", "", source_leaves=list(range(SOURCES)))
    operators = draw(st.integers(0, 8))
    outputs = draw(st.integers(1, 6))
    levels: dict[int, int] = dict.fromkeys(range(SOURCES), 0)
    for leaf in range(SOURCES, SOURCES + operators):
        above = draw(st.sets(st.integers(0, leaf - 1), min_size=1, max_size=3))
        levels[leaf] = 1 + max(levels[each] for each in above)
        program.operators[leaf] = Operator(leaf, str(leaf), None, ())
        for each in above:
            program.takers.setdefault(each, []).append(ToOperator(leaf, None))  # type: ignore[arg-type]
    for number in range(outputs):
        for leaf in draw(st.sets(st.sampled_from(sorted(levels)), min_size=1, max_size=2)):
            taker = ToTopic(number, None) if number % 3 else ToSpark(number, None)  # type: ignore[arg-type]
            program.takers.setdefault(leaf, []).append(taker)
    deepest = max(levels.values())
    program.levels = [
        [[leaf for leaf in program.operators if levels[leaf] == at + 1] for at in range(deepest)]
    ]
    return program


def takers_of(program: Program) -> Iterator[tuple[int, Taker]]:
    return ((leaf, taker) for leaf, some in program.takers.items() for taker in some)


@given(programs(), st.integers(1, 4))
def test_each_taker_is_in_one_part_with_all_that_it_needs(program: Program, most: int) -> None:
    parts = program.split(most)

    assert 1 <= len(parts) <= most
    found = [pair for part in parts for pair in takers_of(part)]
    assert sorted(map(repr, found)) == sorted(map(repr, takers_of(program)))
    targets: list[tuple[type, int]] = []
    for part in parts:
        stepped = {leaf for level in part.levels[0] for leaf in level}
        for leaf, taker in takers_of(part):
            assert leaf in program.source_leaves or leaf in stepped
            if isinstance(taker, ToOperator):
                assert taker.leaf in stepped
        targets += {(type(taker), taker[0]) for _, taker in takers_of(part)}
    assert len(targets) == len(set(targets))  # all rows for one are made in one part
    steps = [leaf for part in parts for level in part.levels[0] for leaf in level]
    assert sorted(steps) == sorted(program.operators)
    assert all(len(part.levels[0]) == len(program.levels[0]) for part in parts)


def test_views_over_one_stream_are_shared_out_evenly() -> None:
    program = Program(2, "", "", "", source_leaves=[0])
    program.levels = [[list(range(1, 31))]]
    for leaf in range(1, 31):
        program.operators[leaf] = Operator(leaf, str(leaf), None, ())
        program.takers.setdefault(0, []).append(ToOperator(leaf, None))  # type: ignore[arg-type]
        program.takers[leaf] = [ToTopic(leaf, None)]

    first, second = program.split(2)

    assert len(first.levels[0][0]) == len(second.levels[0][0]) == 15
