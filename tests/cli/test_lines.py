import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli import lines
from penstock.cli.lines import LineFormat, LineReader
from penstock.errors import InvalidInput

LONGEST = 1_000


def reader(content: bytes, form: LineFormat, folder: Path, longest: int = LONGEST) -> LineReader:
    path = folder / "input"
    path.write_bytes(content)
    # Read to its end within a test, and closed with the process.
    return LineReader(os.open(path, os.O_RDONLY), "input", form, longest=longest)


def read(content: bytes, form: LineFormat, folder: Path) -> list[tuple[bytes | None, bytes | None]]:
    chunks = reader(content, form, folder)
    return [(record.key, record.value) for records in chunks for record in records]


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)


@pytest.mark.parametrize(
    ("content", "values"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"\n", [b""]),
        (b"a\n\n\xff\r\nb", [b"a", b"", b"\xff\r", b"b"]),
    ],
)
def test_every_line_is_a_record(content: bytes, values: list[bytes], tmp_path: Path) -> None:
    assert read(content, LineFormat(), tmp_path) == [(None, value) for value in values]


@given(st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), min_size=1))
def test_blocks_do_not_show(tmp_path_factory: pytest.TempPathFactory, written: list[bytes]) -> None:
    folder = tmp_path_factory.mktemp("lines")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK_BYTES", 7)
        found = read(b"".join(line + b"\n" for line in written), LineFormat(), folder)
    assert found == [(None, line) for line in written]


def test_lines_are_handed_out_as_they_come(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    chunks = iter(LineReader(reading, "pipe", LineFormat(), longest=LONGEST))
    for written, values in [(b"a\nb\nhalf", [b"a", b"b"]), (b" of it\n", [b"half of it"])]:
        os.write(writing, written)
        assert [record.value for record in next(chunks)] == values
    os.close(writing)
    assert list(chunks) == []


def test_a_key_stands_before_the_first_separator(tmp_path: Path) -> None:
    form = LineFormat(key_separator="::")
    found = read(b"a::1\n::2\nb::\nc::d::e\n", form, tmp_path)
    assert found == [(b"a", b"1"), (b"", b"2"), (b"b", b""), (b"c", b"d::e")]


@pytest.mark.parametrize(
    ("field", "key"),
    [
        ('"ada"', b"ada"),
        ('"\\u00e9"', "é".encode()),
        ("7", b"7"),
        ("1.50", b"1.5"),
        ("true", b"true"),
        ("null", None),
        ('{"a": [1]}', b'{"a":[1]}'),
    ],
)
def test_a_key_from_a_field(field: str, key: bytes | None, tmp_path: Path) -> None:
    line = f'{{"x": 1, "id": {field}}}'.encode()
    form = LineFormat(json=True, key_field="id")
    assert read(line, form, tmp_path) == [(key, line)]


def test_json_may_follow_a_key(tmp_path: Path) -> None:
    form = LineFormat(json=True, key_separator=":")
    assert read(b'k: {"a":1} \n', form, tmp_path) == [(b"k", b'{"a":1}')]
    with pytest.raises(InvalidInput, match="line 1: this is not JSON"):
        read(b"k:v\n", form, tmp_path)


def test_json_is_stored_as_it_came_and_blank_lines_are_counted(tmp_path: Path) -> None:
    chunks = reader(b'{"a":  1}\n\n \t\r\n[1,\t2]\r\n"x"\nnull', LineFormat(json=True), tmp_path)
    values = [record.value for records in chunks for record in records]
    assert values == [b'{"a":  1}', b"[1,\t2]", b'"x"', b"null"]
    assert chunks.blank == 2


@pytest.mark.parametrize(
    ("form", "bad", "why"),
    [
        (LineFormat(json=True), b'{"a":', "this is not JSON: Expecting value at character 6"),
        (LineFormat(json=True), b"{} {}", "this is not JSON: Extra data at character 4"),
        (LineFormat(json=True), b"\xff", "this is not JSON: byte 1 is not UTF-8"),
        (LineFormat(json=True), b"NaN", "this is not JSON: NaN is not a JSON number"),
        (LineFormat(json=True), b"[-Infinity]", "-Infinity is not a JSON number"),
        (LineFormat(json=True), b"[" * 900, "this is not JSON"),
        (LineFormat(json=True), b"\xef\xbb\xbf{}", "this is not JSON"),
        (LineFormat(json=True, key_field="id"), b'{"ID": 1}', "there is no field 'id'"),
        (LineFormat(json=True, key_field="id"), b"[1]", "there is no field 'id'"),
        (LineFormat(key_separator=":"), b"no colon", "there is no ':' between key and value"),
        (LineFormat(), b"x" * 1_001, "this is longer than 1000 bytes"),
    ],
)
def test_a_bad_line_is_named_after_those_before_it_are_handed_out(
    form: LineFormat, bad: bytes, why: str, tmp_path: Path
) -> None:
    good = b'{"id":1}' if not form.key_separator else b"k:v"
    chunks = iter(reader(b"\n".join([good, good, bad, good]), form, tmp_path))
    assert len(next(chunks)) == 2
    with pytest.raises(InvalidInput) as refused:
        next(chunks)
    assert refused.value.message.startswith("input, line 3: ")
    assert why in refused.value.message


def test_deep_nesting_is_a_bad_line_and_no_crash(tmp_path: Path) -> None:
    deep = b"[" * 200_000
    chunks = reader(deep, LineFormat(json=True), tmp_path, longest=len(deep))
    with pytest.raises(InvalidInput, match="line 1: this is not JSON: it is nested too deeply"):
        list(chunks)


def test_a_line_without_an_end_is_not_kept_in_memory(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "BLOCK_BYTES", 600)
    reading, writing = pipe
    os.write(writing, b"x" * 5_000)  # and the writer goes on
    chunks = LineReader(reading, "pipe", LineFormat(), longest=LONGEST)
    with pytest.raises(InvalidInput, match="pipe, line 1: this is longer"):
        list(chunks)
    assert chunks.bytes <= LONGEST + 600
    os.close(writing)
