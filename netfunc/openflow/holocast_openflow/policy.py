"""Selects the paths of each flow: a state machine without I/O.

armed → (trigger) duplicating → (elimination) trimmed → (one path left) single → armed.
Every event takes the time as a parameter, in seconds on a monotonic clock. The caller
then takes the effects from the engine.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from . import paths as pathset
from .config import Config
from .messages import (
    STALE,
    UNKNOWN_EDGE,
    UNKNOWN_FLOW,
    Address,
    Elimination,
    Hello,
    Json,
    Observation,
    PathReport,
    Refused,
    address,
)
from .paths import NONE, Paths
from .trigger import Meter

KEPT_DECISIONS = 1024
LOST_AFTER = 3  # missed reports
MAX_EDGES = 64
MAX_VIEWERS = 64  # behind one address

RESTING = {"off": "off"}  # state of a flow on the default path, by mode; others are armed


@dataclass
class Edge:
    """A registered edge."""

    hello: Hello
    paths: dict[int, PathReport]
    since: str
    reported: str
    heard: float
    lost: bool = False


@dataclass
class Flow:
    """The traffic to one destination."""

    destination: Address
    mode: str
    since: str
    state: str = "armed"
    allowed: Paths = NONE  # empty = all
    paths: Paths = NONE  # empty = the default path, unmarked
    generation: int = 0
    by_operator: bool = False
    applied: bool = False
    version: int = 0  # of paths, for the switch
    receiver: str | None = None
    moved: float = float("-inf")
    seen: float = 0.0
    orphaned: float = 0.0  # time since which it has had no receiver
    futile: int = -1  # last generation with a recorded trigger without effect
    meters: dict[tuple[str, int], Meter] = field(default_factory=dict)


@dataclass
class Effects:
    """Pending results of events."""

    flows: list[Flow] = field(default_factory=list)  # created or changed
    rerouted: list[Flow] = field(default_factory=list)  # path sets to send to the switch
    removed: list[Address] = field(default_factory=list)
    decisions: list[Json] = field(default_factory=list)


class Engine:
    """Holds flows and edges. Not thread-safe."""

    def __init__(self, conf: Config, wall: Callable[[float], float]) -> None:
        """Take the configuration and the conversion from our clock to UNIX time."""
        self.conf = conf
        self.wall = wall
        self.edges: dict[str, Edge] = {}
        self.flows: dict[Address, Flow] = {}
        self.up: dict[int, Paths] = {}  # paths whose ports are up, by switch
        self.decisions: deque[Json] = deque(maxlen=KEPT_DECISIONS)
        self.sequence = 0
        self.effects = Effects()

    def take(self) -> Effects:
        """Return and clear the pending effects."""
        out, self.effects = self.effects, Effects()
        return out

    # Switch events

    def observe(self, now: float, observer: str, seen: Observation) -> None:
        """Process an uplink packet."""
        flow = self.flows.get(seen.source)
        if flow is None:
            if len(self.flows) >= self.conf.flows or not any(seen.source in n for n in self.conf.towards):
                return
            flow = self._make(now, seen.source)
        flow.seen = now
        key = (observer, seen.port)
        if key not in flow.meters and len(flow.meters) >= MAX_VIEWERS:
            return
        why = flow.meters.setdefault(key, Meter()).observe(self.conf.trigger, self.conf.end, seen.time, now)
        if why:
            self._fire(now, flow, why)

    def ports(self, now: float, dpid: int, up: Paths) -> None:
        """Record which paths' ports are up at a switch."""
        was = self.up.get(dpid)
        if was == up:
            return
        self.up[dpid] = up
        self._decide(
            now, None, "path", f"switch {dpid:#x} has paths {pathset.name(up)} up", before=was or NONE, after=up
        )
        self._follow(now)

    def installed(self, destination: Address, version: int) -> None:
        """Record that a path set is in force at the switch."""
        flow = self.flows.get(destination)
        if flow and flow.version == version and not flow.applied:
            flow.applied = True
            self.effects.flows.append(flow)

    def tick(self, now: float) -> None:
        """Process deadlines. Call it every 20 ms or so."""
        for name, edge in self.edges.items():
            if not edge.lost and now - edge.heard > LOST_AFTER * self.conf.report:
                edge.lost = True
                self._decide(
                    now, None, "edge", f"edge {name} is lost: no report for {now - edge.heard:.1f} s", edge=name
                )
                self._follow(now)
        for flow in list(self.flows.values()):
            self._tick(now, flow)

    # Calls of edges and operators

    def hello(self, now: float, h: Hello) -> None:
        """Register an edge."""
        if h.name not in self.edges and len(self.edges) >= MAX_EDGES:
            raise Refused(503, f"there are {MAX_EDGES} edges")
        stamp = self.stamp(now)
        self.edges[h.name] = Edge(h, h.paths, stamp, stamp, now)
        self._decide(now, None, "edge", f"edge {h.name} registered as {h.role}", edge=h.name)
        self._follow(now)

    def report(self, now: float, name: str, reports: dict[int, PathReport]) -> None:
        """Process an edge's heartbeat."""
        edge = self.edge(name)
        edge.paths, edge.reported, edge.heard, edge.lost = reports, self.stamp(now), now, False
        self._follow(now)

    def leave(self, now: float, name: str) -> None:
        """Remove an edge."""
        self.edge(name)
        del self.edges[name]
        self._decide(now, None, "edge", f"edge {name} left", edge=name)
        self._follow(now)

    def eliminate(self, now: float, name: str, e: Elimination) -> Flow:
        """Process an outcome of Algorithm 1 (steps 4 to 6)."""
        self.edge(name)
        flow = self.flows.get(e.destination)
        if flow is None:
            raise Refused(404, f"no flow to {e.destination}", UNKNOWN_FLOW)
        if flow.receiver != name:
            raise Refused(409, f"edge {name} is not the receiver of the flow to {flow.destination}")
        if e.generation != flow.generation or not flow.paths:
            raise Refused(409, f"the generation is not in force: current is {flow.generation}", STALE)
        if flow.mode != "auto":
            raise Refused(409, f"the flow's mode is {flow.mode}: its paths are not eliminated")
        left = flow.paths & e.remaining if e.single else flow.paths - e.removed
        if not left:
            raise Refused(409, "the elimination would leave no path")
        if left != flow.paths:
            why = e.reason or f"path {pathset.name(flow.paths - left)} delivered nothing in time during a window"
            single = len(left) == 1
            self._move(
                now,
                flow,
                "single" if single else "trimmed",
                left,
                "single" if single else "trim",
                why,
                edge=name,
                rewards=e.rewards,
            )
        return flow

    def set(self, now: float, destination: Address, mode: str, allowed: Paths) -> Flow:
        """Apply an operator's setting to a flow."""
        flow = self.flows.get(destination)
        if flow is None:
            if len(self.flows) >= self.conf.flows:
                raise Refused(503, f"there are {self.conf.flows} flows")
            flow = self._make(now, destination)
        flow.mode, flow.allowed, flow.by_operator = mode, allowed, True
        why = f"an operator set mode {mode}, paths {pathset.name(allowed) if allowed else 'all'}"
        keep = flow.paths & allowed if allowed else flow.paths
        if mode == "off" or (mode == "redirect" and len(keep) > 1):
            keep = NONE
        state = RESTING.get(mode, "armed") if not keep else "single" if len(keep) == 1 else flow.state
        self._move(now, flow, state, keep, "operator", why)
        if mode == "duplicate":
            self._move(now, flow, "duplicating", self._usable(flow), "start", why)
        elif mode == "redirect" and len(allowed) == 1:
            self._move(now, flow, "redirected", allowed, "redirect", why)
        return flow

    def edge(self, name: str) -> Edge:
        """Return an edge; Refused if it is not registered."""
        if name not in self.edges:
            raise Refused(404, f"edge {name[:64]} is not registered; send a hello first", UNKNOWN_EDGE)
        return self.edges[name]

    # Decisions

    def _fire(self, now: float, flow: Flow, why: str) -> None:
        """Handle the trigger: start over all paths, also from a set that proved too small."""
        if now - flow.moved < self.conf.rearm or flow.mode in ("off", "duplicate"):
            return
        usable = self._usable(flow)
        if flow.mode == "redirect":
            self._redirect(now, flow, usable, why)
        elif flow.receiver is None:
            self._futile(now, flow, f"{why}, but no receiver removes duplicates")
        elif usable <= flow.paths:
            self._futile(now, flow, f"{why}, but no other path is up")
        else:
            self._move(now, flow, "duplicating" if len(usable) > 1 else "single", usable, "start", why)

    def _futile(self, now: float, flow: Flow, why: str) -> None:
        """Record, once per generation, a trigger without effect."""
        if flow.futile != flow.generation:
            flow.futile = flow.generation
            self._decide(now, flow, "trigger", why, before=flow.paths, after=flow.paths)

    def _redirect(self, now: float, flow: Flow, usable: Paths, why: str) -> None:
        """Move a flow to the path with the least RTT (section IV.D)."""
        edge = self.edges.get(flow.receiver or "")
        rtts = {i: edge.paths[i].rtt for i in usable if i in edge.paths and edge.paths[i].rtt > 0} if edge else {}
        if not rtts:
            self._futile(now, flow, f"{why}, but no receiver reports RTTs")
            return
        best = min(rtts, key=lambda i: (rtts[i], i))
        if flow.paths != {best}:
            self._move(
                now,
                flow,
                "redirected",
                frozenset({best}),
                "redirect",
                f"{why}: path {best} has the least RTT, {rtts[best]:.1f} ms",
            )

    def _tick(self, now: float, flow: Flow) -> None:
        for meter in flow.meters.values():
            why = meter.silence(self.conf.trigger, now)
            if why:
                self._fire(now, flow, why)
                return
        if (
            len(flow.paths) > 1
            and flow.mode != "duplicate"
            and flow.receiver is None
            and now - flow.orphaned > self.conf.end
        ):
            self._move(now, flow, "armed", NONE, "stop", "no receiver removes duplicates")
        if flow.state == "single" and now - flow.moved >= self.conf.rearm:
            why = f"path {pathset.name(flow.paths)} carries the flow; the trigger is re-armed"
            self._move(now, flow, "armed", flow.paths, "rearm", why)
        if now - flow.seen >= self.conf.end and not flow.by_operator:
            if flow.paths or flow.meters:
                flow.meters.clear()
                self._move(now, flow, RESTING.get(flow.mode, "armed"), NONE, "stop", "the flow has ended")
            if now - flow.seen >= self.conf.forget:
                del self.flows[flow.destination]
                self.effects.removed.append(flow.destination)

    def _follow(self, now: float) -> None:
        """Adapt the flows to changed edges and ports."""
        for flow in self.flows.values():
            receiver = self._receiver(flow.destination)
            if receiver != flow.receiver:
                flow.receiver, flow.orphaned = receiver, now
                self.effects.flows.append(flow)
            usable = self._usable(flow)
            if flow.mode == "duplicate":
                if usable and usable != flow.paths:
                    self._move(now, flow, "duplicating", usable, "start", "the paths that are up changed")
            elif flow.paths - usable and usable:
                left = flow.paths & usable
                state = "armed" if not left else "single" if len(left) == 1 else "trimmed"
                self._move(now, flow, state, left, "trim", f"path {pathset.name(flow.paths - usable)} is lost")

    def _usable(self, flow: Flow) -> Paths:
        """Return the allowed paths that are not known to be down."""
        usable = frozenset(self.conf.sender.paths)
        for up in self.up.values():
            usable &= up
        edge = self.edges.get(flow.receiver or "")
        if edge:
            # Switches answer no probes. If the peer is an edge that does, a path without answers is
            # dead.
            answers = any(p.answers for p in edge.paths.values())
            usable -= {i for i, p in edge.paths.items() if not p.up or (answers and not p.answers)}
        return usable & flow.allowed if flow.allowed else usable

    def _receiver(self, destination: Address) -> str | None:
        """Return the edge whose behind has the longest prefix for the destination."""
        best, found = -1, None
        for name, edge in sorted(self.edges.items()):
            for network in edge.hello.behind:
                if not edge.lost and destination in network and network.prefixlen > best:
                    best, found = network.prefixlen, name
        return found

    def _make(self, now: float, destination: Address) -> Flow:
        flow = Flow(destination, self.conf.mode, self.stamp(now), RESTING.get(self.conf.mode, "armed"), seen=now)
        flow.receiver = self._receiver(destination)
        self.flows[destination] = flow
        self.effects.flows.append(flow)
        self.effects.rerouted.append(flow)
        if flow.mode == "duplicate":
            self._move(now, flow, "duplicating", self._usable(flow), "start", "the mode is duplicate")
        return flow

    def _move(self, now: float, flow: Flow, state: str, to: Paths, kind: str, why: str, **more: Any) -> None:
        before = flow.paths
        if to - before:
            # Generations follow the clock, so they grow even across a restart that loses the state.
            flow.generation = max(flow.generation + 1, int(self.wall(now) * 1000))
        if state != flow.state:
            flow.state, flow.since = state, self.stamp(now)
        if to != before:
            flow.paths, flow.moved, flow.applied = to, now, False
            flow.version += 1
            for meter in flow.meters.values():
                meter.run = 0
            self.effects.rerouted.append(flow)
        self.effects.flows.append(flow)
        self._decide(now, flow, kind, why, before=before, after=to, **more)

    def _decide(
        self, now: float, flow: Flow | None, kind: str, why: str, before: Paths = NONE, after: Paths = NONE, **more: Any
    ) -> None:
        self.sequence += 1
        d: Json = {"sequence": self.sequence, "time": self.stamp(now), "kind": kind, "reason": why}
        if flow is not None:
            d |= {"destination": str(flow.destination), "generation": flow.generation, "state": flow.state}
        d |= {"from": sorted(before), "to": sorted(after)} | {k: v for k, v in more.items() if v}
        self.decisions.append(d)
        self.effects.decisions.append(d)

    # JSON views

    def stamp(self, now: float) -> str:
        """Format a time for JSON."""
        return datetime.fromtimestamp(self.wall(now), UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")

    def flow_json(self, now: float, flow: Flow) -> Json:
        """Return a flow in the format of netfunc/api."""
        out: Json = {
            "destination": str(flow.destination),
            "mode": flow.mode,
            "allowed": sorted(flow.allowed),
            "state": flow.state,
            "paths": sorted(flow.paths),
            "generation": flow.generation,
            "since": flow.since,
            "sender": f"switch-{self.conf.sender.dpid:x}",
            "applied": flow.applied,
            "live": bool(flow.meters) and now - flow.seen < self.conf.end,
        }
        if flow.receiver:
            out["receiver"] = flow.receiver
        newest = max(flow.meters.values(), key=lambda m: m.seen, default=None)
        if newest and newest.interval:
            out["interval_ms"] = newest.interval * 1000
        return out

    def edge_json(self, edge: Edge) -> Json:
        """Return an edge in the format of netfunc/api."""
        return edge.hello.json | {"lost": edge.lost, "since": edge.since, "reported": edge.reported}

    # Restarts

    def state(self) -> Json:
        """Return the persistent state."""
        return {
            "flows": [
                {"destination": str(f.destination), "mode": f.mode, "allowed": sorted(f.allowed), "state": f.state,
                 "paths": sorted(f.paths), "generation": f.generation, "operator": f.by_operator}
                for f in self.flows.values()
            ]
        }  # fmt: skip

    def restore(self, now: float, state: Json) -> None:
        """Restore a state into a new engine; ValueError if it is invalid."""
        try:
            for kept in state["flows"]:
                flow = Flow(
                    address(kept["destination"]), str(kept["mode"]), self.stamp(now), seen=now, moved=now, orphaned=now
                )
                flow.state, flow.generation = str(kept["state"]), int(kept["generation"])
                flow.allowed = pathset.parse(kept["allowed"], "allowed")
                flow.paths = pathset.parse(kept["paths"], "paths") & frozenset(self.conf.sender.paths)
                flow.by_operator = bool(kept["operator"])
                flow.receiver = self._receiver(flow.destination)
                self.flows[flow.destination] = flow
                self.effects.rerouted.append(flow)
        except (KeyError, TypeError, Refused) as e:
            raise ValueError(f"not a state of this program: {e}") from e
