"""The switch duplicates; netfunc/edge removes duplicates and eliminates paths. Needs root and Go."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lab as labs
import pytest
from lab import VIEWER, EdgeLab, wait

REPOSITORY = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.skipif(
    labs.missing() is not None or not shutil.which("go"), reason=labs.missing() or "needs Go"
)


@pytest.fixture
def lab() -> Iterator[EdgeLab]:
    program = REPOSITORY / "build" / "openflow" / "edge"
    subprocess.run(["go", "build", "-o", program, "./netfunc/edge"], cwd=REPOSITORY, check=True)
    lab = EdgeLab()
    try:
        lab.start_controller()
        lab.start_edge(program, window=400, span="0s", completeSpan="0s", slack=0)
        yield lab
    finally:
        lab.show_logs()
        lab.close()


def flow(lab: EdgeLab) -> Any:
    return next(iter(lab.call("GET", "/v1/flows")[1]["flows"]), None)


def test_with_edge(lab: EdgeLab) -> None:
    lab.send(5)  # ARP
    wait("a packet at the viewer", lab.arrivals.read)
    lab.seen()
    lab.stall()
    wait("duplication", lambda: flow(lab)["state"] == "duplicating" and flow(lab)["applied"])
    time.sleep(0.3)  # until the edge has the update and the datapath its rules
    lab.seen()

    before = lab.sent
    lab.send(200)
    on, got = lab.seen(packets=200)
    for i in lab.paths:
        assert [s.number for s in on[i]] == list(range(before, lab.sent)), f"path {i}"
    assert [s.number for s in got] == list(range(before, lab.sent)), "the viewer misses packets, or has them twice"
    assert {s.tos for s in got} == {2}, "the viewer sees marks of paths, or no ECN"

    # The paths are equal, so one of them suffices.
    lab.send(400)
    left = wait("one path to be left", lambda: len(flow(lab)["paths"]) == 1 and flow(lab)["paths"])
    [single] = [d for d in lab.call("GET", "/v1/decisions?since=0")[1]["decisions"] if d["kind"] == "single"]
    assert (single["from"], single["to"], single["destination"]) == ([1, 2, 3], left, VIEWER)
    lab.seen(0.5)
    before = lab.sent
    lab.send(50)
    on, got = lab.seen(packets=50)
    for i in lab.paths:
        assert [s.number for s in on[i]] == (list(range(before, lab.sent)) if i in left else []), f"path {i}"
    assert [s.number for s in got] == list(range(before, lab.sent))
