import ipaddress
import random
import struct
from typing import Any

import pytest

from holocast_openflow import messages, paths, uplink
from holocast_openflow.messages import Refused


def test_codepoints() -> None:
    assert [paths.codepoint(i) for i in range(1, 9)] == [3, 7, 11, 15, 19, 23, 27, 31]
    assert all(c & 3 == 3 for c in map(paths.codepoint, range(1, 9))), "pool 2 is xxxx11"


def test_hello() -> None:
    h = messages.hello(
        {"name": "e", "role": "both", "behind": ["10.0.0.2/24"], "paths": [{"index": 8, "up": True, "rtt_ms": 3}]}
    )
    assert h.behind == (ipaddress.ip_network("10.0.0.0/24"),)
    assert h.paths[8] == messages.PathReport(True, 3.0)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({}, "name"),
        ({"name": "a/b", "role": "receiver"}, "name"),
        ({"name": "a", "role": "sender"}, "OpenFlow switch"),
        ({"name": "a", "role": 1}, "role"),
        ({"name": "a", "role": "both", "behind": ["x"]}, "behind"),
        ({"name": "a", "role": "both", "behind": "x"}, "behind"),
        ({"name": "a", "role": "both", "paths": [{"index": 0}]}, "index"),
        ({"name": "a", "role": "both", "paths": [{"index": True}]}, "index"),
        ({"name": "a", "role": "both", "paths": [{"index": 1}, {"index": 1}]}, "index"),
        ({"name": "a", "role": "both", "paths": [{"index": 1, "rtt_ms": "3"}]}, "rtt_ms"),
        ({"name": "a", "role": "both", "paths": [3]}, "index"),
    ],
)
def test_wrong_hello(body: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Refused, match=sentence) as refused:
        messages.hello(body)
    assert refused.value.status == 400


@pytest.mark.parametrize("text", ["", "10.0.0", "fe80::1%eth0", "0.0.0.0", "::", None, 7])
def test_wrong_address(text: object) -> None:
    with pytest.raises(Refused):
        messages.address(text)


def test_mapped_address() -> None:
    assert messages.address("::ffff:10.0.0.1") == ipaddress.ip_address("10.0.0.1")


def test_observations() -> None:
    body = {
        "observations": [{"time_ns": 1500000000, "source": "[fd00::2]:7", "destination": "[fd00::1]:8", "length": 250}]
    }
    assert messages.observations(body) == [messages.Observation(1.5, ipaddress.ip_address("fd00::2"), 7)]
    for entry in (
        1,
        {"time_ns": "1", "source": "1.2.3.4:5"},
        {"time_ns": 1, "source": "1.2.3.4"},
        {"time_ns": 1, "source": None},
    ):
        with pytest.raises(Refused):
            messages.observations({"observations": [entry]})


def test_elimination() -> None:
    body = {"destination": "10.0.0.2", "generation": 3, "removed": [3], "remaining": [1, 2], "reason": "line\nbreak"}
    e = messages.elimination(body)
    assert (set(e.removed), set(e.remaining), e.single, e.reason) == ({3}, {1, 2}, False, "line break")
    for wrong in (
        {"generation": "3"},
        {"removed": [9]},
        {"removed": 3},
        {"remaining": [1.0]},
        {"destination": "x"},
        {"rewards": [1] * 9},
    ):
        with pytest.raises(Refused):
            messages.elimination(body | wrong)


V6 = ipaddress.ip_address("fd00::2").packed
IPV4 = bytes(12) + struct.pack(
    "!HBBHHHBBH4s4sHH", 0x0800, 0x45, 0, 250, 0, 0, 64, 17, 0, bytes([10, 0, 0, 2]), bytes(4), 5000, 6000
)
IPV6 = bytes(12) + struct.pack("!HIHBB16s16sHH", 0x86DD, 6 << 28, 210, 17, 64, V6, bytes(16), 5000, 6000)


@pytest.mark.parametrize(
    ("frame", "want"),
    [
        (IPV4, ("10.0.0.2", 5000, 250)),
        (IPV6, ("fd00::2", 5000, 250)),
        (IPV4[:12] + bytes.fromhex("81000005") + IPV4[12:], ("10.0.0.2", 5000, 250)),
        (IPV4[:12] + bytes.fromhex("88a8000581000005") + IPV4[12:], ("10.0.0.2", 5000, 250)),
        (IPV4[:20] + bytes([0x20, 0x01]) + IPV4[22:], ("10.0.0.2", 0, 250)),  # a fragment that is not the first
        (IPV4[:-4], ("10.0.0.2", 0, 250)),
        (IPV4[:29], None),
        (IPV6[:37], None),
        (bytes(12) + b"\x08\x06" + bytes(28), None),
        (b"", None),
    ],
)
def test_uplink(frame: bytes, want: tuple[str, int, int] | None) -> None:
    got = uplink.read(frame)
    assert (got and (str(got[0]), *got[1:])) == want


def test_uplink_takes_anything() -> None:
    r = random.Random(1)
    for _ in range(20000):
        frame = bytearray(r.choice([IPV4, IPV6]))
        for _ in range(r.randrange(4)):
            frame[r.randrange(len(frame))] = r.randrange(256)
        uplink.read(bytes(frame[: r.randrange(len(frame) + 1)]))
