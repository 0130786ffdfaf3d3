"""InitProducerId: a number for each idempotent producer."""

from typing import Any

from kio.schema.errors import ErrorCode

from penstock.errors import PenstockError
from penstock.log.server.broker import error_code
from penstock.log.server.call import Call, api

NONE = -1


@api(22, "init_producer_id", 0, 5)
def init_producer_id(call: Call) -> Any:
    request = call.request
    error, producer_id, epoch = 0, NONE, NONE
    if request.transactional_id is not None:
        # Not retriable, so that a transactional producer fails at once instead of asking on.
        error = ErrorCode.transactional_id_authorization_failed
    else:
        try:
            # Also for one that had a number and lost count: nobody writes under it any more.
            producer_id, epoch = call.broker.engine.new_producer_id(), 0
        except PenstockError as refusal:
            error = error_code(refusal)
    return call.response(error_code=ErrorCode(error), producer_id=producer_id, producer_epoch=epoch)
