"""Whether a server answers in Kafka's protocol yet, asked in the fewest bytes.

A client library would do, but it backs off while the server is not there and takes longer to make
than the log takes to start.
"""

import socket
import struct

# Metadata, version 4: size, key, version, correlation id, no client id, no topics, no creation.
_WHICH_BROKERS = struct.pack(">ihhihi?", 15, 3, 4, 0, -1, 0, False)
_ANSWER = struct.Struct(">iiii")  # size, correlation id, throttle time, number of brokers


def answers(address: str) -> bool:
    """True once the server at `host:port` names a broker when it is asked for them."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=2) as connection:
            connection.sendall(_WHICH_BROKERS)
            answer = connection.recv(_ANSWER.size, socket.MSG_WAITALL)
    except OSError:
        return False
    return len(answer) == _ANSWER.size and _ANSWER.unpack(answer)[3] > 0
