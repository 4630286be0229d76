import ipaddress
import random
from contextlib import suppress
from typing import Any

import pytest

from holocast_openflow import config, messages, paths
from holocast_openflow.messages import Elimination, Observation, Refused
from holocast_openflow.policy import Engine, Flow

VIEWER = ipaddress.ip_address("10.0.0.2")
ALL = frozenset({1, 2, 3})


class World:
    """An engine, its clock and its effects."""

    def __init__(self, **settings: Any) -> None:
        base = {
            "sender": {"dpid": 1, "access": [1], "paths": {1: 2, 2: 3, 3: 4}},
            "towards": ["10.0.0.0/24"],
            "token": "x",
        }
        self.engine = Engine(config.parse(base | settings), lambda now: now + 1_700_000_000)
        self.now = 1000.0

    def hello(self, name: str = "r", behind: str = "10.0.0.0/24", **more: Any) -> None:
        self.engine.hello(self.now, messages.hello({"name": name, "role": "receiver", "behind": [behind], **more}))

    def uplink(self, *intervals: float) -> None:
        for interval in intervals:
            self.pass_time(interval)
            self.engine.observe(self.now, "", Observation(self.now, VIEWER, 5000))

    def pass_time(self, seconds: float) -> None:
        steps = max(1, round(seconds / 0.02))
        for _ in range(steps):
            self.now += seconds / steps
            for name, edge in self.engine.edges.items():
                if not edge.lost and name != "dead":
                    self.engine.report(self.now, name, edge.paths)
            self.engine.tick(self.now)

    def trigger(self) -> Flow:
        self.uplink(*[0.033] * 6, 0.2, 0.2, 0.2)
        return self.flow

    def eliminate(self, removed: set[int], remaining: set[int], generation: int | None = None) -> Flow:
        now = self.flow.generation if generation is None else generation
        e = Elimination(VIEWER, now, frozenset(removed), frozenset(remaining), len(remaining) == 1, [], "")
        return self.engine.eliminate(self.now, "r", e)

    @property
    def flow(self) -> Flow:
        return self.engine.flows[VIEWER]

    @property
    def kinds(self) -> list[str]:
        return [d["kind"] for d in self.engine.decisions if d["kind"] not in ("edge", "path")]


def test_course() -> None:
    w = World()
    w.hello()
    flow = w.trigger()
    assert (flow.state, set(flow.paths)) == ("duplicating", set(ALL))
    first = flow.generation
    w.eliminate({3}, {1, 2})
    assert (flow.state, set(flow.paths), flow.generation) == ("trimmed", {1, 2}, first)
    w.eliminate({1}, {2})
    assert (flow.state, set(flow.paths)) == ("single", {2})
    w.uplink(0.2, 0.2, 0.2)
    assert flow.paths == {2}, "triggered within the re-arm time"
    w.uplink(*[0.033] * 40)
    assert (flow.state, set(flow.paths)) == ("armed", {2})
    w.trigger()
    assert (flow.state, set(flow.paths)) == ("duplicating", set(ALL))
    assert flow.generation > first
    w.pass_time(12)
    assert (flow.state, set(flow.paths)) == ("armed", set()), "the flow ended"
    w.pass_time(300)
    assert VIEWER not in w.engine.flows
    assert w.kinds == ["start", "trim", "single", "rearm", "start", "stop"]


def test_single_in_one_step() -> None:
    w = World()
    w.hello()
    w.trigger()
    assert w.eliminate({1, 3}, {2}).state == "single"


@pytest.mark.parametrize(
    ("removed", "remaining", "older", "kind"),
    [({3}, {1, 2}, 1, messages.STALE), ({1, 2, 3}, set(), 0, "about:blank"), ({1, 2, 3}, {4}, 0, "about:blank")],
)
def test_refused(removed: set[int], remaining: set[int], older: int, kind: str) -> None:
    w = World()
    w.hello()
    flow = w.trigger()
    with pytest.raises(Refused) as refused:
        w.eliminate(removed, remaining, flow.generation - older)
    assert (refused.value.status, refused.value.kind) == (409, kind)
    assert flow.paths == ALL


def test_nobody_else_eliminates() -> None:
    w = World()
    w.hello()
    w.trigger()
    w.engine.hello(w.now, messages.hello({"name": "other", "role": "receiver"}))
    e = Elimination(VIEWER, w.flow.generation, frozenset({1}), frozenset({2, 3}), False, [], "")
    with pytest.raises(Refused, match="not the receiver"):
        w.engine.eliminate(w.now, "other", e)
    with pytest.raises(Refused, match="not registered"):
        w.engine.eliminate(w.now, "nobody", e)


def test_no_receiver_no_duplicates() -> None:
    w = World()
    assert w.trigger().paths == frozenset()
    assert w.kinds == ["trigger"]
    w.hello()
    assert w.trigger().paths == ALL


def test_receiver_lost() -> None:
    w = World()
    w.hello("dead")
    w.trigger()
    w.uplink(*[0.033] * 120)
    assert w.engine.edges["dead"].lost
    assert w.flow.paths == ALL, "it may return"
    w.uplink(*[0.033] * 310)
    assert w.flow.paths == frozenset()


def test_silence_fires() -> None:
    w = World()
    w.hello()
    w.uplink(*[0.033] * 6)
    w.pass_time(0.5)
    assert w.flow.state == "duplicating"


def test_ports() -> None:
    w = World()
    w.hello()
    w.engine.ports(w.now, 1, frozenset({1, 2}))
    assert w.trigger().paths == {1, 2}
    w.engine.ports(w.now, 1, frozenset({2}))
    assert (w.flow.state, set(w.flow.paths)) == ("single", {2})
    w.engine.ports(w.now, 1, frozenset())
    assert w.flow.paths == {2}, "nothing is better than another"


def test_path_down_at_the_receiver() -> None:
    w = World()
    w.hello(paths=[{"index": 1, "up": True}, {"index": 2, "up": True, "loss": 1}, {"index": 3, "up": True}])
    assert w.trigger().paths == {1, 3}


def test_nobody_answers_probes() -> None:
    w = World()
    w.hello(paths=[{"index": i, "up": i != 2, "loss": 1} for i in ALL])
    assert w.trigger().paths == {1, 3}


def test_operator() -> None:
    w = World()
    w.hello(paths=[{"index": 1, "up": True, "rtt_ms": 40}, {"index": 2, "up": True, "rtt_ms": 30.5}])
    flow = w.trigger()
    w.engine.set(w.now, VIEWER, "off", frozenset())
    assert (flow.state, set(flow.paths)) == ("off", set())
    assert w.trigger().paths == frozenset()
    w.engine.set(w.now, VIEWER, "duplicate", frozenset({1, 3}))
    assert (flow.state, set(flow.paths)) == ("duplicating", {1, 3})
    with pytest.raises(Refused, match="mode is duplicate"):
        w.eliminate({3}, {1})
    w.engine.set(w.now, VIEWER, "redirect", frozenset())
    assert flow.paths == frozenset()
    w.pass_time(1)
    assert (w.trigger().state, set(flow.paths)) == ("redirected", {2})
    w.engine.set(w.now, VIEWER, "redirect", frozenset({3}))
    assert (flow.state, set(flow.paths)) == ("redirected", {3})


def test_restart() -> None:
    w = World()
    w.hello()
    w.trigger()
    w.eliminate({3}, {1, 2})
    again = World()
    again.engine.restore(again.now, w.engine.state())
    again.hello()
    assert (again.flow.state, set(again.flow.paths), again.flow.generation) == ("trimmed", {1, 2}, w.flow.generation)
    assert again.engine.take().rerouted == [again.flow]
    again.pass_time(5)
    assert again.flow.paths == {1, 2}
    states: list[dict[str, Any]] = [{}, {"flows": [{}]}, {"flows": [{"destination": "x"}]}, {"flows": 1}]
    for broken in states:
        with pytest.raises(ValueError, match="not a state of this program"):
            World().engine.restore(0, broken)


def test_strangers_make_no_flows() -> None:
    w = World(flows=1)
    w.engine.observe(w.now, "", Observation(w.now, ipaddress.ip_address("192.0.2.1"), 1))
    assert not w.engine.flows
    w.uplink(0.033)
    w.engine.observe(w.now, "", Observation(w.now, ipaddress.ip_address("10.0.0.9"), 1))
    assert list(w.engine.flows) == [VIEWER]
    for port in range(1000):
        w.engine.observe(w.now, "", Observation(w.now, VIEWER, port))
    assert len(w.flow.meters) <= 64


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens(seed: int) -> None:
    """Within a generation paths are only removed, and an elimination never removes all."""
    r = random.Random(seed)
    w = World()
    w.hello()
    w.uplink(0.033)
    before = (w.flow.generation, w.flow.paths)
    for _ in range(300):
        some = frozenset(i for i in ALL if r.random() < 0.5)
        eliminating = False
        match r.randrange(7):
            case 0:
                w.uplink(*[0.2] * r.randrange(5))
            case 1:
                w.uplink(*[0.033] * r.randrange(9))
            case 2:
                w.engine.ports(w.now, r.choice([1, 2]), some)
            case 3:
                w.engine.set(w.now, VIEWER, r.choice(config.MODES), some)
            case 4:
                w.pass_time(r.random())
            case 5:
                if "r" in w.engine.edges and r.random() < 0.3:
                    w.engine.leave(w.now, "r")
                else:
                    w.hello()
            case 6:
                eliminating = True
                with suppress(Refused):
                    w.eliminate(set(some), set(ALL - some))
        generation, now = w.flow.generation, w.flow.paths
        if generation == before[0]:
            assert now <= before[1]
        assert generation >= before[0]
        assert now or not eliminating or not before[1]
        assert (w.flow.state in ("trimmed", "duplicating")) >= (len(now) > 1), paths.name(now)
        before = (generation, now)
