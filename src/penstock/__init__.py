"""A stream-processing platform in one `pip install`, on a log that speaks the Kafka protocol."""

from penstock import errors
from penstock.events.record import Position, Record
from penstock.log.contract import Log

__version__ = "0.1.0"

__all__ = ["Log", "Position", "Record", "__version__", "errors"]
