"""The JSON of netfunc/api, as edges and operators send it."""

import ipaddress
import re
from dataclasses import dataclass
from typing import Any

from . import paths
from .config import MODES, Network
from .paths import Paths

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Json = dict[str, Any]

STALE = "urn:holocast:stale-generation"
UNKNOWN_EDGE = "urn:holocast:unknown-edge"
UNKNOWN_FLOW = "urn:holocast:unknown-flow"

MAX_PREFIXES = 1024
MAX_ELIMINATIONS = 256


class Refused(Exception):
    """An error response (RFC 9457); detail is one sentence."""

    def __init__(self, status: int, detail: str, kind: str = "about:blank") -> None:
        """Take the HTTP status, the detail, and the type."""
        super().__init__(detail)
        self.status, self.detail, self.kind = status, detail, kind


@dataclass(frozen=True)
class PathReport:
    """A path as seen by an edge."""

    up: bool
    rtt: float = 0.0  # ms; 0 = unknown
    answers: bool = True  # some probes were answered


@dataclass(frozen=True)
class Hello:
    """The hello of an edge."""

    name: str
    role: str
    behind: tuple[Network, ...]
    paths: dict[int, PathReport]
    json: Json


@dataclass(frozen=True)
class Elimination:
    """An outcome of Algorithm 1."""

    destination: Address
    generation: int
    removed: Paths
    remaining: Paths
    single: bool
    rewards: list[Any]
    reason: str


@dataclass(frozen=True)
class Observation:
    """A packet seen by an edge's uplink monitor."""

    time: float  # seconds, on the edge's clock
    source: Address
    port: int


def hello(body: Json) -> Hello:
    """Parse POST /v1/edges."""
    name, role = body.get("name"), body.get("role")
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise Refused(400, "name is not 1 to 64 letters, digits, '.', '_' or '-'")
    if role == "sender":
        raise Refused(400, "this controller accepts only receivers: the sender is an OpenFlow switch")
    if role not in ("receiver", "both"):
        raise Refused(400, "role is not receiver or both")
    prefixes = body.get("behind") or []
    if not isinstance(prefixes, list) or len(prefixes) > MAX_PREFIXES:
        raise Refused(400, f"behind is not an array of up to {MAX_PREFIXES} prefixes")
    try:
        behind = tuple(ipaddress.ip_network(p, strict=False) for p in prefixes if isinstance(p, str))
    except ValueError as e:
        raise Refused(400, f"behind: {e}") from e
    return Hello(name, role, behind, path_reports(body), body)


def path_reports(body: Json) -> dict[int, PathReport]:
    """Parse the paths of a hello or a report."""
    out: dict[int, PathReport] = {}
    entries = body.get("paths") or []
    if not isinstance(entries, list):
        raise Refused(400, "paths is not an array")
    for entry in entries:
        index = entry.get("index") if isinstance(entry, dict) else None
        if type(index) is not int or not 1 <= index <= paths.MAX_PATHS or index in out:
            raise Refused(400, f"the index of a path is not from 1 to {paths.MAX_PATHS}, each once")
        rtt, loss = entry.get("rtt_ms", 0), entry.get("loss", 0)
        if type(rtt) not in (int, float) or type(loss) not in (int, float):
            raise Refused(400, f"path {index}: rtt_ms or loss is not a number")
        out[index] = PathReport(bool(entry.get("up")), float(rtt), loss < 1)
    return out


def eliminations(body: Json) -> list[Elimination]:
    """Parse POST /v1/edges/{name}/eliminations."""
    entries = body.get("eliminations")
    if not isinstance(entries, list) or not 1 <= len(entries) <= MAX_ELIMINATIONS:
        raise Refused(400, f"eliminations is not an array of 1 to {MAX_ELIMINATIONS}")
    return [elimination(e if isinstance(e, dict) else {}) for e in entries]


def elimination(body: Json) -> Elimination:
    """Parse one elimination of POST /v1/edges/{name}/eliminations."""
    generation = body.get("generation")
    if type(generation) is not int:
        raise Refused(400, "generation is not a whole number")
    try:
        removed = paths.parse(body.get("removed", []), "removed")
        remaining = paths.parse(body.get("remaining", []), "remaining")
    except ValueError as e:
        raise Refused(400, str(e)) from e
    rewards = body.get("rewards") or []
    if not isinstance(rewards, list) or len(rewards) > paths.MAX_PATHS:
        raise Refused(400, f"rewards is not an array of up to {paths.MAX_PATHS}")
    reason = re.sub(r"[^\x20-\x7e\u00a0-\uffff]", " ", str(body.get("reason") or ""))[:200]
    return Elimination(
        address(body.get("destination")), generation, removed, remaining, body.get("single") is True, rewards, reason
    )


def observations(body: Json) -> list[Observation]:
    """Parse POST /v1/edges/{name}/uplink."""
    entries = body.get("observations")
    if not isinstance(entries, list):
        raise Refused(400, "observations is not an array")
    out = []
    for entry in entries:
        at = entry.get("time_ns") if isinstance(entry, dict) else None
        if type(at) is not int:
            raise Refused(400, "time_ns of an observation is not a whole number")
        host, _, port = str(entry.get("source")).rpartition(":")
        if not re.fullmatch(r"[0-9]{1,5}", port):
            raise Refused(400, "source of an observation is not address:port")
        out.append(Observation(at / 1e9, address(host.strip("[]")), int(port)))
    return out


def setting(body: Json) -> tuple[str, Paths]:
    """Parse PUT /v1/flows/{destination}: mode and allowed paths, none = all."""
    mode = body.get("mode")
    if mode not in MODES:
        raise Refused(400, f"mode is not one of {', '.join(MODES)}")
    try:
        return mode, paths.parse(body.get("paths") or [], "paths")
    except ValueError as e:
        raise Refused(400, str(e)) from e


def address(text: object) -> Address:
    """Parse an address without zone."""
    try:
        out = ipaddress.ip_address(text) if isinstance(text, str) and "%" not in text else None
    except ValueError:
        out = None
    if out is None or out.is_unspecified:
        raise Refused(400, f"{str(text)[:80]!r}: want an IP address without a zone")
    mapped = getattr(out, "ipv4_mapped", None)
    return mapped or out
