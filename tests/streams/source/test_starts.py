import pytest

from penstock import Record
from penstock.errors import InvalidInput
from penstock.streams.source.starts import starts_of
from tests.streams.source.listed import ListedTopic


@pytest.fixture
def topic() -> ListedTopic:
    topic = ListedTopic(*([Record(value=b"", timestamp=at) for at in (10, 20, 30)] for _ in "ab"))
    topic.starts[1] = 1
    return topic


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("earliest", [0, 1]),
        ("latest", [3, 3]),
        ("11", [1, 1]),
        ("99", [3, 3]),
        ('{"0": 2}', [2, 1]),
        ('{"0": 3, "1": 1}', [3, 1]),
        ("{}", [0, 1]),
    ],
)
def test_places_to_start_from(topic: ListedTopic, text: str, starts: list[int]) -> None:
    assert starts_of(topic, text) == dict(enumerate(starts))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("soon", "not a place"),
        ("", "not a place"),
        ("true", "not a place"),
        ("1.5", "not a place"),
        ("[1, 2]", "not a place"),
        ('{"0": "1"}', "not a place"),
        ('{"0": true}', "not a place"),
        ('{"0": 4}', "listed/0 has no offset 4"),
        ('{"1": 0}', "listed/1 has no offset 0"),
        ('{"2": 0}', "has no partition 2"),
        ('{"first": 0}', "has no partition first"),
    ],
)
def test_no_places(topic: ListedTopic, text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        starts_of(topic, text)
