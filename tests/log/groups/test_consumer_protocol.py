from hypothesis import given
from hypothesis import strategies as st

from penstock.log.groups.consumer_protocol import subscribed_topics
from tests.log.groups.kafka_bytes import subscription


def test_topics_are_read_from_any_version() -> None:
    assert subscribed_topics(subscription("a", "b")) == {"a", "b"}
    later = b"\0\3" + subscription("a")[2:] + b"what a later version adds"
    assert subscribed_topics(later) == {"a"}


@given(st.binary(max_size=64))
def test_hostile_bytes_are_no_subscription_or_a_small_one(data: bytes) -> None:
    read = subscribed_topics(data)
    assert read is None or sum(map(len, read)) <= len(data)


@given(st.integers(0, 60))
def test_a_cut_subscription_is_none(cut: int) -> None:
    whole = b"\0\0" + subscription("first", "second")[2:-4]
    assert subscribed_topics(whole) == {"first", "second"}
    if cut < len(whole):
        assert subscribed_topics(whole[:cut]) is None
