"""The durable, partitioned event log: its storage, its groups, its Kafka wire and its clients."""

from penstock.log.contract import Bounds, GroupDescription, GroupLag, Log, TopicDescription

__all__ = ["Bounds", "GroupDescription", "GroupLag", "Log", "TopicDescription"]
