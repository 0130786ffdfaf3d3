"""ApiVersions: what this server speaks, the first thing a client asks."""

import struct
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.log.extension import API_KEY, VERSION
from penstock.log.server.call import API_VERSIONS, APIS, PRODUCE, Call, api

UNSUPPORTED_VERSION = 35


@api(API_VERSIONS, "api_versions", 0, 4)
def api_versions(call: Call) -> Any:
    keys = tuple(
        call.entity(
            "ApiVersion",
            api_key=one.key,
            # Older librdkafka stops compressing when it does not see the oldest Produce, which it
            # then never uses; whoever does is turned away.
            min_version=0 if one.key == PRODUCE else one.oldest,
            max_version=one.newest,
        )
        for one in sorted(APIS.values())
    )
    own = call.entity("ApiVersion", api_key=API_KEY, min_version=VERSION, max_version=VERSION)
    return call.response(error_code=ErrorCode.none, api_keys=(*keys, own))


def unsupported_version(correlation_id: int) -> bytes:
    """The answer to a version of this request that is not known yet: try again with these."""
    known = APIS[API_VERSIONS]
    body = struct.pack(
        ">ihihhh", correlation_id, UNSUPPORTED_VERSION, 1, known.key, known.oldest, known.newest
    )
    return struct.pack(">i", len(body)) + body
