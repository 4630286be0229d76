import ipaddress
from typing import Any

from os_ken.ofproto import ofproto_parser
from os_ken.ofproto import ofproto_v1_3 as of
from os_ken.ofproto.ofproto_protocol import ProtocolDesc

from holocast_openflow import config, rules

PATHS = {1: 11, 2: {"port": 12, "mac": "02:00:00:00:00:02"}, 3: 13}
CONF = config.parse(
    {
        "sender": {"dpid": 1, "access": [1, 2], "paths": PATHS},
        "receiver": {"dpid": 2, "access": [1], "paths": {1: 11, 2: 12, 3: 13}},
        "towards": ["10.0.0.0/24", "fd00::/64"],
        "token": "x",
    }
)
DP = ProtocolDesc(of.OFP_VERSION)


def wire(message: Any) -> Any:
    """Parse a serialized message."""
    message.set_xid(1)
    message.serialize()
    raw = bytes(message.buf)
    return type(message).parser(DP, *ofproto_parser.header(raw), raw)


def sent(message: Any) -> Any:
    """Return a message that os-ken can write but not read."""
    message.set_xid(1)
    message.serialize()
    return message


def outputs(actions: Any) -> list[int]:
    return [a.port for a in actions if a.type == of.OFPAT_OUTPUT]


def test_group() -> None:
    add, modify = (sent(m) for m in rules.group(DP, CONF.sender, 1, 7, frozenset({2, 3})))
    assert (add.command, modify.command) == (of.OFPGC_ADD, of.OFPGC_MODIFY)
    for g in (add, modify):
        assert (g.type, g.group_id, len(g.buckets)) == (of.OFPGT_ALL, 7, 2)
        assert [outputs(b.actions) for b in g.buckets] == [[12], [13]]
        fields = [{a.key: a.value for a in b.actions if a.type == of.OFPAT_SET_FIELD} for b in g.buckets]
        assert fields == [{"ip_dscp": 7, "eth_dst": "02:00:00:00:00:02"}, {"ip_dscp": 11}]


def test_group_without_paths() -> None:
    [bucket] = sent(rules.group(DP, CONF.sender, 3, 7, frozenset())[0]).buckets
    assert [a.type for a in bucket.actions] == [of.OFPAT_OUTPUT], "packets of the default path are marked"
    assert outputs(bucket.actions) == [13]


def test_no_loops() -> None:
    """Packets from a path never go to a path."""
    paths = {11, 12, 13}
    messages = [*rules.sender(DP, CONF, 1), *rules.receiver(DP, CONF.receiver, 1)]  # type: ignore[arg-type]
    for m in messages:
        source = m.match.get("in_port")
        out = set(outputs(m.instructions[0].actions))
        assert source not in out
        if source in paths or m.table_id == 1:
            assert not out & paths, m


def test_uplink_window() -> None:
    monitored = [m for m in rules.sender(DP, CONF, 1) if len(m.instructions) == 2]
    assert len(monitored) == 3 * 2
    first = monitored[0]
    first.set_xid(1)
    first.serialize()
    # As ovs-ofctl sends check_pkt_larger(213)->reg0[0], check_pkt_larger(314)->reg0[1].
    for action in ("ffff001800002320003100d50000000100040000", "ffff0018000023200031013a0001000100040000"):
        assert action in bytes(first.buf).hex()
    v6 = [m for m in monitored if m.match.get("eth_type") == 0x86DD]
    assert v6[0].match["ipv6_src"] == ("fd00::", "ffff:ffff:ffff:ffff::")


def test_receiver_takes_marks_off() -> None:
    messages = rules.receiver(DP, CONF.receiver, 1)  # type: ignore[arg-type]
    marks = [m.match for m in map(wire, messages) if "ip_dscp" in m.match]
    assert {(m["in_port"], m["ip_dscp"]) for m in marks} == {(11, 3), (12, 7), (13, 11)}


def test_steer() -> None:
    for destination in ("10.0.0.2", "fd00::2"):
        steered = [wire(m) for m in rules.steer(DP, CONF.sender, 7, ipaddress.ip_address(destination))]
        assert [m.match["in_port"] for m in steered] == [1, 2]
        assert all(m.instructions[0].actions[0].group_id == 7 for m in steered)
