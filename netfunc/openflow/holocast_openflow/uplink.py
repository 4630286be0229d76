"""Parses uplink packets sent by the switch."""

import ipaddress
import struct

from .messages import Address

_IPV4, _IPV6, _VLANS = 0x0800, 0x86DD, (0x8100, 0x88A8)


def read(frame: bytes) -> tuple[Address, int, int] | None:
    """Return source address, source port and IP length of a frame that may be cut short.

    The port is 0 if there is none. Return None for other frames than IP packets.
    """
    try:
        offset = 12
        (kind,) = struct.unpack_from("!H", frame, offset)
        for _ in range(2):
            if kind in _VLANS:
                offset += 4
                (kind,) = struct.unpack_from("!H", frame, offset)
        offset += 2
        source: Address
        if kind == _IPV4:
            first, length, fragment, protocol, raw = struct.unpack_from("!BxHxxHxB2x4s", frame, offset)
            if first >> 4 != 4:
                return None
            source = ipaddress.IPv4Address(raw)
            offset += 4 * (first & 15)
            whole = fragment & 0x1FFF == 0
        elif kind == _IPV6:
            first, payload, protocol, raw = struct.unpack_from("!B3xHBx16s", frame, offset)
            if first >> 4 != 6:
                return None
            source, length, whole = ipaddress.IPv6Address(raw), payload + 40, True
            offset += 40
        else:
            return None
    except struct.error:
        return None
    port = 0
    if protocol in (6, 17) and whole and len(frame) >= offset + 2:
        (port,) = struct.unpack_from("!H", frame, offset)
    return source, port, length
