"""Fills the table of handlers: importing a module of `apis` enters what it answers."""

from penstock.log.server.apis import (
    configs,
    groups,
    metadata,
    offsets,
    positions,
    producers,
    topics,
    versions,
)

__all__ = [
    "configs",
    "groups",
    "metadata",
    "offsets",
    "positions",
    "producers",
    "topics",
    "versions",
]
