"""Producing, fetching, finding and deleting records."""

from typing import Any

from tests.log.server.plain_client import PlainClient, batch, fetching, production
from tests.log.server.scenes.stage import (
    NO_SUCH_ID,
    SESSION,
    await_partitions,
    listing,
    new_topic,
    scene,
)


@scene
def produce(client: PlainClient, version: int) -> list[Any]:
    topic = new_topic(client, records=0)
    wanted = [
        production(topic, batch(b"a", b"b")),
        production(topic, batch(b"c")),
        production(topic, batch(b"d"), 1, acks=1),
        production(topic, batch(b"e"), 9),
        production(topic, batch(b"e"), acks=7),
    ]
    return [client.ask("produce", version, **each) for each in wanted]


@scene
def fetch(client: PlainClient, version: int) -> list[Any]:
    topic = new_topic(client)
    key: Any = await_partitions(client, topic, 2) if version >= 13 else topic
    unknown: Any = NO_SUCH_ID if version >= 13 else "no-such-topic"
    wanted: list[dict[Any, dict[int, int]]] = [
        {key: {0: 0, 1: 0}},
        {key: {0: 2}},
        {key: {0: 4}},
        {key: {0: -7, 9: 0}},
        {unknown: {0: 0}},
    ]
    answers = [client.ask("fetch", version, **fetching(each)) for each in wanted]
    mixed = client.ask("fetch", version, **fetching({unknown: {0: 0}, key: {0: 0}}))
    # In any order: Kafka puts those that it knows first.
    return [*answers, sorted(mixed.responses, key=lambda topic: topic.partitions[0].error_code)]


@scene
def list_offsets(client: PlainClient, version: int) -> list[Any]:
    topic = new_topic(client)
    times = [-1, -2, 1_700_000_000_000, 1_700_000_000_001, 1_700_000_002_000, 1_700_000_002_001, 0]
    times += [-3, -4, -5, -6, -100]  # not all of which every version knows

    def ask(name: str, partition: int, timestamp: int) -> Any:
        return client.ask("list_offsets", version, **listing(name, {partition: timestamp}))

    return [
        *(ask(topic, partition, timestamp) for partition in (0, 1) for timestamp in times),
        ask(topic, 9, -1),
        ask("no-such-topic", 0, -1),
    ]


@scene
def delete_records(client: PlainClient, version: int) -> list[Any]:
    topic = new_topic(client)

    def ask(name: str, partition: int, offset: int) -> Any:
        asked = {"partition_index": partition, "offset": offset}
        return client.ask(
            "delete_records",
            version,
            topics=[{"name": name, "partitions": [asked]}],
            timeout=SESSION,
        )

    return [
        ask(topic, 0, 2),
        ask(topic, 0, 1),
        ask(topic, 0, 4),
        ask(topic, 0, -2),
        ask(topic, 0, -1),
        ask(topic, 9, 0),
        ask("no-such-topic", 0, 0),
    ]


@scene
def init_producer_id(client: PlainClient, version: int) -> list[Any]:
    fresh = {"transactional_id": None, "transaction_timeout": SESSION}
    answers = [client.ask("init_producer_id", version, **fresh)]
    if version >= 3:
        known = {
            "producer_id": answers[0].producer_id,
            "producer_epoch": answers[0].producer_epoch,
        }
        answers.append(client.ask("init_producer_id", version, **fresh, **known))
    return answers
