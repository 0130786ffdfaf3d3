import struct
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.log import extension
from penstock.log.server import handlers as _handlers  # noqa: F401  fills the table
from penstock.log.server.call import API_VERSIONS, APIS, PRODUCE
from tests.log.server.plain_client import PlainClient, plain
from tests.log.server.scenes import SCENES

EVERY_VERSION = [
    pytest.param(api.schema, version, id=f"{api.schema}-{version}")
    for api in sorted(APIS.values())
    for version in range(api.oldest, api.newest + 1)
]


def codes(answer: Any) -> Iterator[int]:
    """Every error code in an answer, from the outside in."""
    match answer:
        case dict():
            if "error_code" in answer:
                yield answer["error_code"]
            for part in answer.values():
                yield from codes(part)
        case list():
            for part in answer:
                yield from codes(part)


@pytest.mark.parametrize(("schema", "version"), EVERY_VERSION)
def test_every_version_is_answered_in_its_own_form(
    client: PlainClient, schema: str, version: int
) -> None:
    # The client reads the answers to their last byte, so a field too many or too few is seen.
    answers = plain(SCENES[schema](client, version))

    assert 0 in codes(answers)
    assert -1 not in codes(answers), "an error that the server did not foresee"


def test_advertises_what_it_answers(client: PlainClient) -> None:
    answer = client.ask("api_versions", 0)

    offered = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
    answered = {api.key: (api.oldest, api.newest) for api in APIS.values()}
    # Older librdkafka stops compressing when it does not see the oldest Produce.
    assert offered == answered | {
        PRODUCE: (0, answered[PRODUCE][1]),
        extension.API_KEY: (extension.VERSION, extension.VERSION),
    }
    assert set(SCENES) == {api.schema for api in APIS.values()}


@pytest.mark.parametrize("version", [5, 99, -1])
def test_unknown_version_of_the_first_question_is_answered_with_those_known(
    client: PlainClient, version: int
) -> None:
    client.send_bytes(struct.pack(">ihhih", 10, API_VERSIONS, version, 42, -1))

    size = int.from_bytes(client.receive_bytes(4), "big")
    correlation, error, count, *known = struct.unpack(">ihihhh", client.receive_bytes(size))
    assert (correlation, error, count) == (42, 35, 1)
    assert known == [API_VERSIONS, APIS[API_VERSIONS].oldest, APIS[API_VERSIONS].newest]
    # The client goes on with a version that both know.
    assert client.ask("api_versions", 3, client_software_name="a", client_software_version="1")


@pytest.mark.parametrize(
    ("key", "version"), [(PRODUCE, 2), (PRODUCE, 12), (1, 3), (1, 17), (3, 14), (3, -1), (4, 0)]
)
def test_other_unknown_requests_end_the_connection(
    client: PlainClient, key: int, version: int
) -> None:
    client.send_bytes(struct.pack(">ihhih", 10, key, version, 1, -1))

    with pytest.raises(ConnectionError):
        client.receive()
