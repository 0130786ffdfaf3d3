import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.streams.source.event_time import TIMES
from penstock.streams.source.punctuation import HEADER, punctuation, read_punctuation

times = st.integers(TIMES.start, TIMES.stop - 1)


@given(st.text(), times)
def test_what_was_promised_is_read(producer: str, time: int) -> None:
    record = punctuation(producer, time, partition=3)
    assert (record.value, record.partition) == (None, 3)
    assert read_punctuation([("trace", b"x"), *record.headers]) == (producer, time)


def test_headers_without() -> None:
    assert read_punctuation([]) is None
    assert read_punctuation([("trace", b"1 a"), ("penstock", None)]) is None


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"17",
        b"soon a",
        b"1.5 a",
        b"\xff\xff a",
        str(TIMES.stop).encode() + b" a",
        str(TIMES.start - 1).encode() + b" a",
        b"9" * 400 + b" a",
        b"9" * 5000 + b" a",
    ],
)
def test_broken(content: bytes | None) -> None:
    with pytest.raises(InvalidInput, match=HEADER) as refused:
        read_punctuation([(HEADER, content)])
    assert len(refused.value.message) < 120
