"""DescribeConfigs and IncrementalAlterConfigs: topics' settings, and the server's to look at."""

from functools import partial
from typing import Any

from penstock.errors import InvalidInput, InvalidPolicy
from penstock.log.policy import Setting, TopicPolicy, check_topic_name
from penstock.log.server.apis.topics import DEFAULT_CONFIG, TOPIC_CONFIG, attempt
from penstock.log.server.broker import NODE_ID
from penstock.log.server.call import Call, api

TOPIC, BROKER = 2, 4
STATIC_BROKER_CONFIG = 4
SET, DELETE, APPEND, SUBTRACT = range(4)


@api(32, "describe_configs", 1, 4)
def describe_configs(call: Call) -> Any:
    return call.response(results=tuple(_describe(call, one) for one in call.request.resources))


def _describe(call: Call, asked: Any) -> Any:
    found: list[tuple[str, str, int]] = []
    outcome = attempt(lambda: found.extend(_settings(call, asked)))
    keys = asked.configuration_keys
    return call.entity(
        "DescribeConfigsResult",
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=tuple(
            call.entity(
                "DescribeConfigsResourceResult",
                name=name,
                value=value,
                read_only=asked.resource_type == BROKER,
                config_source=source,
                is_sensitive=False,
                synonyms=(),
                config_type=0,
                documentation=None,
            )
            for name, value, source in found
            if keys is None or name in keys
        ),
        **outcome,
    )


def _settings(call: Call, asked: Any) -> list[tuple[str, str, int]]:
    if asked.resource_type == TOPIC:
        check_topic_name(asked.resource_name)
        defaults = TopicPolicy().settings()
        settings = call.broker.topics.get(asked.resource_name).policy.settings()
        return [
            (name, value, DEFAULT_CONFIG if value == defaults[name] else TOPIC_CONFIG)
            for name, value in settings.items()
        ]
    if asked.resource_type == BROKER and asked.resource_name in ("", str(NODE_ID)):
        own = call.broker.settings
        settings = {
            "auto.create.topics.enable": str(own.auto_create).lower(),
            "num.partitions": str(own.partitions),
            "socket.request.max.bytes": str(own.max_frame_bytes),
            "max.connections": str(own.max_connections),
            "connections.max.idle.ms": str(round(own.idle_seconds * 1000)),
        }
        return [(name, value, STATIC_BROKER_CONFIG) for name, value in settings.items()]
    raise InvalidInput(
        f"nothing to configure: type {asked.resource_type}, name {asked.resource_name!r}"
    )


@api(44, "incremental_alter_configs", 0, 1)
def incremental_alter_configs(call: Call) -> Any:
    dry = call.request.validate_only
    return call.response(
        responses=tuple(
            call.entity(
                "AlterConfigsResourceResponse",
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
                **attempt(partial(_alter, call, asked, dry)),
            )
            for asked in call.request.resources
        )
    )


def _alter(call: Call, asked: Any, dry: bool) -> None:
    if asked.resource_type != TOPIC:
        raise InvalidInput(
            "only topics can be changed while the server runs",
            hint="the server's own settings are options of `penstock log serve`",
        )
    check_topic_name(asked.resource_name)
    changes: dict[str, Setting | None] = {}
    for change in asked.configs:
        if change.config_operation not in (SET, DELETE):
            raise InvalidPolicy(f"{change.name} is not a list", hint="set it to a value instead")
        if change.config_operation == SET and change.value is None:
            raise InvalidInput(f"{change.name} is set to nothing", hint="delete it instead")
        changes[change.name] = None if change.config_operation == DELETE else change.value
    call.broker.topics.alter(asked.resource_name, changes, dry=dry)
