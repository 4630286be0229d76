"""The OpenFlow 1.3 messages that make a switch an end of the paths.

Table 0 classifies packets by the port they enter, and sends uplink packets of viewers
through table 1, which picks those in the size window. Packets to a flow's destination
go to the flow's group: one bucket per path, type ALL, so that each bucket works on its
own copy. Packets from hosts only ever go to paths and the other way round, so parallel
paths form no loop; packets of no flow take the default path.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Any

from os_ken.ofproto import ofproto_v1_3 as of
from os_ken.ofproto import ofproto_v1_3_parser as parser

from .config import Config, Network, Switch
from .messages import Address
from .paths import Paths, codepoint

COOKIE = 0x486F6C6F63617374  # "Holocast"
CAPTURE = 128  # bytes of an uplink packet sent to the controller

DEFAULT, PATH, FLOW = 10, 20, 30  # priorities

_ETHERNET = 14
_CHECK_PKT_LARGER = 49
_NXM_NX_REG0 = 0x00010004

Message = Any  # os-ken is untyped


def sender(dp: Any, conf: Config, default: int) -> Iterator[Message]:
    """Forward on the default path, and monitor the uplink."""
    switch = conf.sender
    yield from _forward(dp, switch, default)
    for port in switch.paths.values():
        for network in conf.towards:
            longer = [_longer_than(conf.uplink[0] - 1, 0), _longer_than(conf.uplink[1], 1)]
            yield _rule(dp, 0, PATH, _match(network, "src", in_port=port.number), longer, goto=1)
    deliver = _outputs(switch.access)
    yield _rule(
        dp, 1, PATH, parser.OFPMatch(reg0=(1, 3)), [*deliver, parser.OFPActionOutput(of.OFPP_CONTROLLER, CAPTURE)]
    )
    yield _rule(dp, 1, DEFAULT, parser.OFPMatch(), deliver)


def receiver(dp: Any, switch: Switch, default: int) -> Iterator[Message]:
    """Forward, and remove the path's mark."""
    yield from _forward(dp, switch, default)
    for path, port in switch.paths.items():
        unmark = [parser.OFPActionSetField(ip_dscp=0), *_outputs(switch.access)]
        for ethertype in (0x0800, 0x86DD):
            match = parser.OFPMatch(in_port=port.number, eth_type=ethertype, ip_dscp=codepoint(path))
            yield _rule(dp, 0, PATH, match, unmark)


def _forward(dp: Any, switch: Switch, default: int) -> Iterator[Message]:
    for port in switch.access:
        ports = [p for p in switch.access if p != port]
        yield _rule(dp, 0, DEFAULT, parser.OFPMatch(in_port=port), _outputs([switch.paths[default].number, *ports]))
    for path in switch.paths.values():
        yield _rule(dp, 0, DEFAULT, parser.OFPMatch(in_port=path.number), _outputs(switch.access))


def group(dp: Any, switch: Switch, default: int, number: int, paths: Paths) -> list[Message]:
    """Send a flow's packets on its paths; on the default path, unmarked, if there are none.

    Two messages, since OpenFlow has no "add or modify": the switch refuses one of them.
    """
    buckets = [_bucket(switch, path, mark=bool(paths)) for path in sorted(paths or {default})]
    return [
        parser.OFPGroupMod(dp, command, of.OFPGT_ALL, number, buckets) for command in (of.OFPGC_ADD, of.OFPGC_MODIFY)
    ]


def steer(dp: Any, switch: Switch, number: int, destination: Address) -> Iterator[Message]:
    """Send packets to a destination to its group."""
    for match in _towards(switch, destination):
        yield _rule(dp, 0, FLOW, match, [parser.OFPActionGroup(number)])


def remove(dp: Any, number: int) -> list[Message]:
    """Remove a group with the rules that use it."""
    return [parser.OFPGroupMod(dp, of.OFPGC_DELETE, of.OFPGT_ALL, number)]


def _towards(switch: Switch, destination: Address) -> Iterator[Message]:
    for port in switch.access:
        kind = {4: (0x0800, "ipv4_dst"), 6: (0x86DD, "ipv6_dst")}[destination.version]
        yield parser.OFPMatch(in_port=port, eth_type=kind[0], **{kind[1]: str(destination)})


def _bucket(switch: Switch, path: int, *, mark: bool) -> Message:
    port = switch.paths[path]
    actions = [parser.OFPActionSetField(ip_dscp=codepoint(path))] if mark else []  # keeps ECN
    if port.mac:
        actions.append(parser.OFPActionSetField(eth_dst=port.mac))
    return parser.OFPBucket(actions=[*actions, parser.OFPActionOutput(port.number)])


def _match(network: Network, side: str, **more: Any) -> Message:
    kind = {4: (0x0800, "ipv4_"), 6: (0x86DD, "ipv6_")}[network.version]
    return parser.OFPMatch(
        eth_type=kind[0], **{kind[1] + side: (str(network.network_address), str(network.netmask))}, **more
    )


def _outputs(ports: Iterable[int]) -> list[Message]:
    return [parser.OFPActionOutput(p) for p in ports]


def _rule(
    dp: Any, table: int, priority: int, match: Message, actions: list[Message], goto: int | None = None
) -> Message:
    instructions = [parser.OFPInstructionActions(of.OFPIT_APPLY_ACTIONS, actions)]
    if goto is not None:
        instructions.append(parser.OFPInstructionGotoTable(goto))
    return parser.OFPFlowMod(
        dp, cookie=COOKIE, table_id=table, priority=priority, match=match, instructions=instructions
    )


def _longer_than(length: int, bit: int) -> Message:
    """Set a bit of register 0 if an IP packet is longer: Open vSwitch's check_pkt_larger.

    OpenFlow cannot match a length, and os-ken does not have this action (OVS 2.12 and
    later, ovs-actions(7)).
    """
    data = struct.pack("!HHI6x", length + _ETHERNET, bit, _NXM_NX_REG0)
    return parser.NXActionUnknown(_CHECK_PKT_LARGER, data=data)
