import http.client
import ipaddress
import json
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holocast_openflow import config, rest
from holocast_openflow.control import Control
from holocast_openflow.messages import Observation
from holocast_openflow.policy import Flow

VIEWER = "10.0.0.2"
SETTINGS = {
    "sender": {"dpid": 1, "access": [1], "paths": {1: 2, 2: 3, 3: 4}},
    "towards": ["10.0.0.0/24"],
    "token": "secret",
    "listen": "127.0.0.1:0",
}


class Service:
    """A REST server without a switch."""

    def __init__(self, **settings: Any) -> None:
        conf = config.parse(SETTINGS | settings)
        self.routed: list[Flow] = []
        self.control = Control(conf, self.routed.extend, lambda _: None)
        self.server = rest.Server(conf, self.control)
        self.port = self.server.server_address[1]
        polling = 0.01  # interval of shutdown
        threading.Thread(target=self.server.serve_forever, args=(polling,), daemon=True).start()

    def request(
        self, method: str, path: str, body: Any = None, token: str | None = "secret", tls: ssl.SSLContext | None = None
    ) -> Any:
        if tls:
            c: http.client.HTTPConnection = http.client.HTTPSConnection(
                "127.0.0.1", self.port, context=tls, timeout=120
            )
        else:
            c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        c.request(method, path, raw, {"Authorization": f"Bearer {token}"} if token else {})
        return c.getresponse()

    def call(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, Any]:
        response = self.request(method, path, body, **more)
        raw = response.read()
        return response.status, json.loads(raw) if raw else None

    def trigger(self) -> None:
        """Stall a viewer's uplink, on a simulated clock."""
        at = 0.0
        for interval in [0.033] * 6 + [0.2] * 3:
            at += interval
            with self.control.act() as (engine, now):
                engine.observe(now, "", Observation(at, ipaddress.ip_address(VIEWER), 5000))


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    yield service
    service.server.shutdown()
    service.server.server_close()


HELLO = {"name": "r", "role": "receiver", "behind": ["10.0.0.0/24"]}


def test_contract(service: Service) -> None:
    assert service.call("POST", "/v1/edges", HELLO) == (200, {"report_interval_ms": 1000, "flows": []})
    report = {"paths": [{"index": 1, "up": True, "rtt_ms": 20.5}], "nonce": "0"}
    assert service.call("POST", "/v1/edges/r/report", report) == (204, None)
    watch = service.request("GET", "/v1/edges/r/watch")
    assert json.loads(watch.readline()) == {"snapshot": True, "flows": []}
    service.trigger()
    updates = [json.loads(watch.readline()) for _ in range(2)]
    [flow] = updates[-1]["flows"]
    assert (flow["state"], flow["paths"]) == ("duplicating", [1, 2, 3])
    assert (flow["receiver"], flow["sender"]) == ("r", "switch-1")
    assert [f.destination for f in service.routed][-1] == ipaddress.ip_address(VIEWER)
    elimination = {"destination": VIEWER, "generation": flow["generation"], "removed": [3], "remaining": [1, 2]}
    stale = elimination | {"generation": flow["generation"] - 1}
    status, answer = service.call("POST", "/v1/edges/r/eliminations", {"eliminations": [stale, elimination]})
    assert (status, [o["destination"] for o in answer["outcomes"]]) == (200, [VIEWER, VIEWER])
    assert answer["outcomes"][0]["problem"]["type"] == "urn:holocast:stale-generation"
    answer = answer["outcomes"][1]["flow"]
    assert answer["paths"] == [1, 2]
    assert json.loads(watch.readline())["flows"][0]["state"] == "trimmed"
    assert service.call("GET", "/v1/flows")[1]["flows"] == [answer]
    assert service.call("PUT", f"/v1/flows/{VIEWER}", {"mode": "off"})[1]["state"] == "off"
    assert service.call("GET", "/v1/edges")[1]["edges"][0]["name"] == "r"
    assert service.call("GET", "/v1/status")[1]["flows"] == 1
    decisions = service.call("GET", "/v1/decisions?since=1")[1]["decisions"]
    assert [(d["sequence"], d["kind"]) for d in decisions] == [(2, "start"), (3, "trim"), (4, "operator")]
    assert service.call("DELETE", "/v1/edges/r") == (204, None)
    assert service.call("POST", "/v1/edges/r/report", {})[1]["type"] == "urn:holocast:unknown-edge"
    json.loads(watch.readline())  # off
    assert json.loads(watch.readline()) == {"removed": [VIEWER]}


def test_uplink_of_an_edge(service: Service) -> None:
    service.call("POST", "/v1/edges", HELLO)
    at, seen = 0, []
    for interval in [33] * 6 + [200] * 3:
        at += interval * 1_000_000
        seen.append({"time_ns": at, "source": f"{VIEWER}:5000", "destination": "10.0.0.1:443", "length": 250})
    assert service.call("POST", "/v1/edges/r/uplink", {"observations": seen}) == (204, None)
    assert service.call("GET", "/v1/flows")[1]["flows"][0]["state"] == "duplicating"


@pytest.mark.parametrize("token", [None, "", "Secret", "secret "])
def test_token(service: Service, token: str | None) -> None:
    for method, path in (("GET", "/v1/status"), ("POST", "/v1/edges"), ("GET", "/v1/edges/r/watch"), ("GET", "/")):
        status, problem = service.call(method, path, token=token)
        assert (status, problem["title"]) == (401, "Unauthorized")


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/edges", b"{", 400),
        ("POST", "/v1/edges", b"[]", 400),
        ("POST", "/v1/edges", b"[" * 100_000, 400),
        ("POST", "/v1/edges", b"\xff", 400),
        ("PUT", "/v1/flows/here", {"mode": "auto"}, 400),
        ("PUT", f"/v1/flows/{VIEWER}", {"mode": "perhaps"}, 400),
        ("PUT", f"/v1/flows/{VIEWER}", {"mode": "auto", "paths": [0]}, 400),
        ("GET", "/v1/decisions?since=-1", None, 400),
        ("GET", "/v1/edges/r/report", None, 404),
        ("DELETE", "/v1/edges/r", None, 404),
        ("GET", "/", None, 404),
    ],
)
def test_wrong_calls(service: Service, method: str, path: str, body: Any, status: int) -> None:
    got, problem = service.call(method, path, body)
    assert got == status
    assert problem["status"] == status
    assert problem["detail"]


@pytest.mark.parametrize("header", ["Content-Length: 1048577", "Content-Length: -1", "Transfer-Encoding: chunked"])
def test_body_that_is_not_read(service: Service, header: str) -> None:
    with socket.create_connection(("127.0.0.1", service.port), timeout=120) as s:
        s.sendall(f"POST /v1/edges HTTP/1.1\r\nAuthorization: Bearer secret\r\n{header}\r\n\r\n".encode())
        assert s.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_nonsense_on_the_wire(service: Service) -> None:
    for nonsense in (
        b"\x00\x16\x03\x01",
        b"GET\r\n\r\n",
        b"POST /v1/edges HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"\r\n" * 200,
    ):
        with socket.create_connection(("127.0.0.1", service.port), timeout=120) as s:
            s.sendall(nonsense)
            s.shutdown(socket.SHUT_WR)
            while s.recv(4096):
                pass
    assert service.call("GET", "/v1/status")[0] == 200


def test_a_slow_watcher_begins_anew(service: Service) -> None:
    service.call("POST", "/v1/edges", HELLO)
    watcher = service.control.watch("r")
    for n in range(200):
        for mode in ("duplicate", "off"):
            service.call("PUT", f"/v1/flows/10.0.0.{n % 5 + 2}", {"mode": mode})
    updates = []
    while (update := watcher.updates.get(timeout=120)) is not None:
        updates.append(update)
    assert len(updates) <= 256


def certificates(directory: Path) -> None:
    """Create a CA, and certificates for the server and a client."""
    run = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"]
    subprocess.run(
        [*run, "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.pem"], cwd=directory, check=True, capture_output=True
    )
    for name in ("server", "client"):
        by = ["-CA", "ca.pem", "-CAkey", "ca.key", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
        subprocess.run(
            [*run, *by, "-keyout", f"{name}.key", "-out", f"{name}.pem"], cwd=directory, check=True, capture_output=True
        )


@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl")
def test_mutual_tls(tmp_path: Path) -> None:
    certificates(tmp_path)
    names = {"certificate": "server.pem", "key": "server.key", "clientCA": "ca.pem"}
    service = Service(tls={k: str(tmp_path / v) for k, v in names.items()}, token=None)
    trust = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    with pytest.raises((ssl.SSLError, OSError)):
        service.call("GET", "/v1/status", token=None, tls=trust)
    trust.load_cert_chain(tmp_path / "client.pem", tmp_path / "client.key")
    assert service.call("GET", "/v1/status", token=None, tls=trust)[0] == 200
    with pytest.raises(OSError, match=r".*"):
        service.call("GET", "/v1/status")
    service.server.shutdown()
    service.server.server_close()


def test_state_survives(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    service = Service(state=str(state))
    service.call("POST", "/v1/edges", HELLO)
    service.trigger()
    [flow] = service.call("GET", "/v1/flows")[1]["flows"]
    again = Service(state=str(state))
    [kept] = again.call("GET", "/v1/flows")[1]["flows"]
    for key in ("paths", "state", "generation"):
        assert kept[key] == flow[key]
    state.write_text('{"flows": [{"destination": "x"')
    assert Service(state=str(state)).call("GET", "/v1/flows")[1]["flows"] == []
    for s in (service, again):
        s.server.shutdown()
