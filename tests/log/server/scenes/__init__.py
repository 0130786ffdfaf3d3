"""Every API in a scene: importing the modules enters what they play."""

from tests.log.server.scenes import groups, records, topics
from tests.log.server.scenes.stage import SCENES

__all__ = ["SCENES", "groups", "records", "topics"]
