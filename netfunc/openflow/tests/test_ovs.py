"""Runs the controller with Open vSwitch. Needs root; `pytest -rs` shows why it is skipped."""

import json
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import lab as labs
import pytest
from lab import VIEWER, Lab, Seen, wait

EDGE = "viewer-edge"
ALL = [1, 2, 3]

pytestmark = pytest.mark.skipif(labs.missing() is not None, reason=str(labs.missing()))


@pytest.fixture
def lab() -> Iterator[Lab]:
    lab = Lab()
    try:
        lab.start_controller()
        lab.send(5)  # ARP
        wait("a packet at the viewer", lab.arrivals.read)
        lab.seen()
        yield lab
    finally:
        lab.show_logs()
        lab.close()


class Receiver:
    """A receiving edge: registers, watches and reports."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.updates: queue.Queue[Any] = queue.Queue()
        self.stop = threading.Event()
        self.hello()
        threading.Thread(target=self._watch, daemon=True).start()
        threading.Thread(target=self._report, daemon=True).start()
        assert self.updates.get(timeout=120)["snapshot"]

    def hello(self) -> None:
        body = {"name": EDGE, "role": "receiver", "behind": [f"{VIEWER}/32"], "paths": []}
        status, welcome = self.lab.call("POST", "/v1/edges", body)
        assert status == 200
        assert welcome["report_interval_ms"] == 1000

    def _watch(self) -> None:
        with suppress(OSError), self.lab.open("GET", f"/v1/edges/{EDGE}/watch") as stream:
            for line in stream:
                self.updates.put(json.loads(line))

    def _report(self) -> None:
        while not self.stop.wait(0.5):
            with suppress(OSError):  # while the controller is down
                self.lab.call("POST", f"/v1/edges/{EDGE}/report", {"paths": [{"index": i, "up": True} for i in ALL]})

    def flow(self, state: str) -> Any:
        """Wait for an update with the flow applied in a state."""
        deadline = time.monotonic() + 120
        while True:
            for flow in self.updates.get(timeout=max(0, deadline - time.monotonic())).get("flows", []):
                if flow["state"] == state and flow["applied"]:
                    return flow

    def eliminate(self, generation: int, removed: list[int], remaining: list[int]) -> tuple[int, Any]:
        """Return the outcome's status, and the flow or the problem."""
        body = {
            "destination": VIEWER,
            "generation": generation,
            "removed": removed,
            "remaining": remaining,
            "single": len(remaining) == 1,
        }
        status, answer = self.lab.call("POST", f"/v1/edges/{EDGE}/eliminations", {"eliminations": [body]})
        if status != 200:
            return status, answer
        [outcome] = answer["outcomes"]
        return (200, outcome["flow"]) if "flow" in outcome else (outcome["problem"]["status"], outcome["problem"])


@pytest.fixture
def receiver(lab: Lab) -> Iterator[Receiver]:
    receiver = Receiver(lab)
    yield receiver
    receiver.stop.set()


def check(lab: Lab, paths: list[int], *, marked: bool = True) -> None:
    """Send packets and check that each path in use carries each one once, with its mark."""
    lab.seen(0.2)  # until the datapath has its rules
    before = lab.sent
    lab.send(50)
    on, got = lab.seen(packets=50 * len(paths))
    for i in lab.paths:
        want = list(range(before, before + 50)) if i in paths else []
        assert [s.number for s in on[i]] == want, f"path {i}"
        dscp = 4 * (i - 1) + 3 if marked else 0
        assert {s.tos for s in on[i]} <= {dscp << 2 | 2}, f"path {i}: marked wrong, or ECN lost"
    assert len(got) == 50 * len(paths)
    assert {s.tos for s in got} == {2}, "the viewer sees marks of paths, or no ECN"


def test_course(lab: Lab, receiver: Receiver) -> None:
    """Trigger, trim, single path, re-arm, trigger again."""
    check(lab, [1], marked=False)
    lab.request(*[0.4] * 4, length=199)
    lab.request(*[0.4] * 4, length=301)
    assert lab.call("GET", "/v1/flows")[1]["flows"] == [], "packets outside of the size window count"
    lab.request(*[0.033] * 10)
    [flow] = wait("the flow", lambda: lab.call("GET", "/v1/flows")[1]["flows"])
    assert (flow["destination"], flow["state"], flow["paths"], flow["receiver"]) == (VIEWER, "armed", [], EDGE)
    check(lab, [1], marked=False)

    lab.stall()
    flow = receiver.flow("duplicating")
    assert flow["paths"] == ALL
    check(lab, ALL)

    generation = flow["generation"]
    assert receiver.eliminate(generation - 1, [3], [1, 2])[1]["type"] == "urn:holocast:stale-generation"
    assert receiver.eliminate(generation, [1, 2, 3], [])[0] == 409
    status, answer = receiver.eliminate(generation, [3], [1, 2])
    assert (status, answer["state"], answer["paths"]) == (200, "trimmed", [1, 2])
    receiver.flow("trimmed")
    check(lab, [1, 2])
    receiver.eliminate(generation, [1], [2])
    receiver.flow("armed")  # at once after single, whose update may be missing
    check(lab, [2])

    lab.stall()
    again = receiver.flow("duplicating")
    assert again["paths"] == ALL
    assert again["generation"] > generation
    check(lab, ALL)
    kinds = [d["kind"] for d in lab.call("GET", "/v1/decisions?since=0")[1]["decisions"]]
    course = [k for k in kinds if k in ("start", "trim", "single", "rearm")]
    assert course == ["start", "trim", "single", "rearm", "start"]


def test_running_stream(lab: Lab, receiver: Receiver) -> None:
    """The datapath duplicates a stream whose rules it has cached."""
    stop = threading.Event()

    def stream() -> None:
        while not stop.is_set():
            lab.send(1, 0.001)

    def duplicate(path: int) -> Seen | None:
        return next(iter(lab.taps[path].read()), None)

    sender = threading.Thread(target=stream)
    sender.start()
    try:
        wait("the default path", lambda: duplicate(1))
        assert not lab.taps[2].read(), "duplicates without a trigger"
        lab.stall()
        for path in ALL:
            wait(f"a packet on path {path}", partial(duplicate, path))
    finally:
        stop.set()
        sender.join()


def test_controller_restart(lab: Lab, receiver: Receiver) -> None:
    lab.stall()
    flow = receiver.flow("duplicating")
    receiver.eliminate(flow["generation"], [3], [1, 2])
    receiver.flow("trimmed")
    lab.stop_controller()
    check(lab, [1, 2])  # the switches keep working
    before = lab.sent
    stop = threading.Event()

    def flow_of_packets() -> None:
        while not stop.is_set():
            lab.send(1)

    stream = threading.Thread(target=flow_of_packets)
    stream.start()
    lab.start_controller()
    stop.set()
    stream.join()
    on, _ = lab.seen()
    for i in (1, 2):
        assert [s.number for s in on[i]] == list(range(before, lab.sent)), (
            f"path {i} lost packets as the controller came back"
        )
    receiver.hello()
    flows = lab.call("GET", "/v1/flows")[1]["flows"]
    assert [(f["state"], f["paths"], f["generation"]) for f in flows] == [("trimmed", [1, 2], flow["generation"])]
    assert receiver.eliminate(flow["generation"], [2], [1])[0] == 200
    wait("the switch", lambda: lab.call("GET", "/v1/flows")[1]["flows"][0]["applied"])
    check(lab, [1])


def test_path_lost(lab: Lab, receiver: Receiver) -> None:
    lab.stall()
    receiver.flow("duplicating")
    labs.run("ip", "-n", lab.switches, "link", "set", "p2a", "down")
    assert receiver.flow("trimmed")["paths"] == [1, 3]
    check(lab, [1, 3])
    lab.call("PUT", f"/v1/flows/{VIEWER}", {"mode": "off"})
    check(lab, [1], marked=False)
    labs.run("ip", "-n", lab.switches, "link", "set", "p1a", "down")
    wait("the default path to change", lambda: "output:13" in lab.ofctl("dump-groups", "s1"))
    check(lab, [3], marked=False)


def test_receiver_lost(lab: Lab) -> None:
    lab.stall()
    time.sleep(0.2)
    kinds = [d["kind"] for d in lab.call("GET", "/v1/decisions?since=0")[1]["decisions"]]
    assert "trigger" in kinds, "the trigger left no trace"
    assert "start" not in kinds, "packets are duplicated without a receiver"
    check(lab, [1], marked=False)


def test_token(lab: Lab) -> None:
    for method, path in (("GET", "/v1/status"), ("POST", "/v1/edges"), ("GET", "/v1/edges/x/watch"), ("GET", "/other")):
        status, problem = lab.call(method, path, token="wrong")
        assert (status, problem["status"]) == (401, 401), path
    assert lab.call("GET", "/other")[0] == 404
    assert lab.call("GET", "/v1/edges/x/watch")[1]["type"] == "urn:holocast:unknown-edge"
