"""A stream-processing platform in one `pip install`, on a log that speaks the Kafka protocol."""

import logging

from penstock import errors
from penstock.events.record import Position, Record
from penstock.log.contract import Log

# A library speaks only where its user listens.
logging.getLogger(__name__).addHandler(logging.NullHandler())

__version__ = "0.1.0"

__all__ = ["Log", "Position", "Record", "__version__", "errors"]
