"""Two Open vSwitch switches with user-space datapath, joined by paths, in network namespaces.

relay ── 1 s1 11‥1n ══ paths 1‥n ══ 11‥1n s2 1 ── viewer

Everything is in namespaces and a directory of its own, and is removed in the end.
"""

import ctypes
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
RELAY, VIEWER = "10.9.0.1", "10.9.0.2"
TOKEN = "secret-of-the-test"
TOOLS = ("ip", "ethtool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl", "ovsdb-tool")
OPENFLOW, REST = 6653, 8480  # nobody else is in the namespace
CLONE_NEWNET, SO_RCVBUFFORCE = 0x40000000, 33  # Linux

libc = ctypes.CDLL(None, use_errno=True)


def missing() -> str | None:
    """Say why there can be no lab here."""
    if os.geteuid() != 0:
        return "needs root, to make network namespaces"
    tools = [t for t in TOOLS if not shutil.which(t)]
    return f"needs {', '.join(tools)} (Debian: openvswitch-switch iproute2 ethtool)" if tools else None


def run(*command: str) -> str:
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    """Be in a network namespace: sockets made here stay there."""
    with open("/proc/thread-self/ns/net") as home, open(f"/run/netns/{namespace}") as away:
        if libc.setns(away.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns {namespace}")
        try:
            yield
        finally:
            libc.setns(home.fileno(), CLONE_NEWNET)


def wait(what: str, until: Callable[[], Any], seconds: float = 10) -> Any:
    """Wait until something is true, and return it."""
    deadline = time.monotonic() + seconds
    while not (value := until()):
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.001)
    return value


@dataclass(frozen=True)
class Seen:
    """A UDP packet on a path or at the viewer."""

    number: int
    tos: int
    time: float


class Tap:
    """What passes a device of the switches towards the viewer."""

    def __init__(self, namespace: str, device: str) -> None:
        with inside(namespace):
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
            self.socket.bind((device, 0x0800))
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        self.socket.setblocking(False)

    def read(self) -> list[Seen]:
        """Return the numbered packets since the last call."""
        out = []
        with suppress(BlockingIOError):
            while True:
                frame, address = self.socket.recvfrom(2048)
                if address[2] == socket.PACKET_OUTGOING or frame[23] != socket.IPPROTO_UDP or frame[30:34] != socket.inet_aton(VIEWER):
                    continue
                out.append(Seen(struct.unpack_from("!I", frame, 42)[0], frame[15], time.monotonic()))
        return out


class Lab:
    """The switches, hosts and controller."""

    def __init__(self, paths: int = 3) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="ho-openflow-"))
        self.prefix = f"ho{os.getpid()}"
        self.switches, self.relay, self.viewer = (f"{self.prefix}{x}" for x in "srv")
        self.paths = range(1, paths + 1)
        self.children: list[subprocess.Popen[bytes]] = []
        self.controller: subprocess.Popen[bytes] | None = None
        self.sent = 0
        try:
            self._network()
            self._start_ovs()
            self.taps = {i: Tap(self.switches, f"p{i}b") for i in self.paths}
            self.arrivals = Tap(self.viewer, "eth0")
            self.downlink = self._udp(self.relay, RELAY, tos=2)  # ECT(0), as quic-go marks
            self.uplink = self._udp(self.viewer, VIEWER)
        except BaseException:
            self.close()
            raise

    def _network(self) -> None:
        for namespace in (self.switches, self.relay, self.viewer):
            run("ip", "netns", "add", namespace)
            run("ip", "-n", namespace, "link", "set", "lo", "up")
        for host, device, address in ((self.relay, "relay", RELAY), (self.viewer, "viewer", VIEWER)):
            run("ip", "-n", self.switches, "link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", host)
            run("ip", "-n", host, "addr", "add", f"{address}/24", "dev", "eth0")
            run("ip", "-n", host, "link", "set", "eth0", "up")
            run("ip", "-n", self.switches, "link", "set", device, "up")
            # The user-space datapath takes packets as they are, checksums included.
            run("ip", "netns", "exec", host, "ethtool", "-K", "eth0", "tx", "off")
        for i in self.paths:
            run("ip", "-n", self.switches, "link", "add", f"p{i}a", "type", "veth", "peer", "name", f"p{i}b")
            for end in "ab":
                run("ip", "-n", self.switches, "link", "set", f"p{i}{end}", "up")

    def _start_ovs(self) -> None:
        d = self.directory
        self.env = os.environ | {f"OVS_{name}DIR": str(d) for name in ("RUN", "DB", "LOG", "SYSCONF")}
        self.db = f"unix:{d}/db.sock"
        run("ovsdb-tool", "create", f"{d}/conf.db", "/usr/share/openvswitch/vswitch.ovsschema")
        quiet = ("-vconsole:off", "-vsyslog:off", "-vfile:info", f"--log-file={d}/ovs.log")
        self._spawn("ovsdb-server", f"{d}/conf.db", f"--remote=p{self.db}", f"--unixctl={d}/db.ctl", *quiet)
        wait("ovsdb-server", (d / "db.sock").exists)
        self.vsctl("--no-wait", "init")
        self._spawn("ovs-vswitchd", self.db, f"--unixctl={d}/vswitchd.ctl", *quiet)
        for switch, dpid, host, end in (("s1", 1, "relay", "a"), ("s2", 2, "viewer", "b")):
            ports = [(host, 1), *((f"p{i}{end}", 10 + i) for i in self.paths)]
            command = ["add-br", switch, "--", "set", "bridge", switch, "datapath_type=netdev", "fail_mode=secure",
                       "protocols=OpenFlow13", f"other-config:datapath-id={dpid:016x}"]  # fmt: skip
            for device, number in ports:
                command += ["--", "add-port", switch, device, "--", "set", "interface", device, f"ofport_request={number}"]
            command += ["--", "set-controller", switch, f"tcp:127.0.0.1:{OPENFLOW}"]
            command += ["--", "set", "controller", switch, "max_backoff=1000", "controller_rate_limit=2000"]
            self.vsctl(*command)

    def vsctl(self, *arguments: str) -> str:
        return run("ovs-vsctl", f"--db={self.db}", "--timeout=20", *arguments)

    def ofctl(self, command: str, switch: str) -> str:
        return run("ovs-ofctl", "-O", "OpenFlow13", command, f"unix:{self.directory}/{switch}.mgmt")

    def _spawn(self, *command: str, **more: Any) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(["ip", "netns", "exec", self.switches, *command], env=self.env, **more)
        self.children.append(child)
        return child

    def start_controller(self) -> None:
        """Start it, and wait until both switches have their rules."""
        conf = self.directory / "openflow.yaml"
        ports = {i: 10 + i for i in self.paths}
        settings = {
            "token": TOKEN,
            "listen": f"127.0.0.1:{REST}",
            "openflow": f"127.0.0.1:{OPENFLOW}",
            "state": f"{self.directory}/state.json",
            "sender": {"dpid": 1, "access": [1], "paths": ports},
            "receiver": {"dpid": 2, "access": [1], "paths": ports},
            "towards": [f"{VIEWER}/32"],
            "rearm": "300ms",
            "trigger": {"interval": "300ms", "silence": "0s"},  # calmer, for busy machines
        }
        conf.write_text(yaml.safe_dump(settings))
        with (self.directory / "controller.log").open("ab") as log:
            self.controller = self._spawn(sys.executable, "-m", "holocast_openflow", str(conf), cwd=HERE.parent, stdout=log, stderr=log)
        wait("REST", self._answers, 60)
        wait("both switches", self._knows_ports, 60)

    def _answers(self) -> bool:
        try:
            status, _ = self.call("GET", "/v1/status")
        except OSError:
            return False
        return status == 200

    def _knows_ports(self) -> bool:
        decisions = self.call("GET", "/v1/decisions?since=0")[1]["decisions"]
        known = [d for d in decisions if d["kind"] == "path" and d["to"] == list(self.paths)]
        return len(known) >= 2

    def stop_controller(self) -> None:
        """Kill it without a warning."""
        assert self.controller
        self.controller.kill()
        self.controller.wait()
        self.children.remove(self.controller)

    def _udp(self, namespace: str, address: str, tos: int = 0) -> socket.socket:
        with inside(namespace):
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
        s.bind((address, 5000))
        return s

    def send(self, packets: int, interval: float = 0.0005) -> None:
        """Send numbered packets from the relay to the viewer."""
        for _ in range(packets):
            self.downlink.sendto(struct.pack("!I", self.sent) + bytes(1000), (VIEWER, 5000))
            self.sent += 1
            time.sleep(interval)

    def request(self, *intervals: float, length: int = 250) -> None:
        """Send uplink packets of an IP length from the viewer, each after an interval."""
        for interval in intervals:
            time.sleep(interval)
            self.uplink.sendto(bytes(length - 28), (RELAY, 5000))

    def seen(self, settle: float = 0.3) -> tuple[dict[int, list[Seen]], list[Seen]]:
        """Return what passed each path, and what the viewer got, since the last call."""
        time.sleep(settle)
        return {i: t.read() for i, t in self.taps.items()}, self.arrivals.read()

    def call(self, method: str, path: str, body: Any = None, token: str = TOKEN) -> tuple[int, Any]:
        """Call the controller; return status and JSON."""
        with self.open(method, path, body, token) as answer:
            raw = answer.read()
            return answer.status, json.loads(raw) if raw else None

    def open(self, method: str, path: str, body: Any = None, token: str = TOKEN) -> Any:
        """Call the controller; return the answer to read."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{REST}{path}", data, {"Authorization": f"Bearer {token}"}, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with inside(self.switches):
                return opener.open(request, timeout=20)
        except urllib.error.HTTPError as e:
            return e

    def close(self) -> None:
        """Remove everything."""
        for child in reversed(self.children):
            child.send_signal(signal.SIGTERM)
        for child in reversed(self.children):
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        for namespace in (self.switches, self.relay, self.viewer):
            subprocess.run(["ip", "netns", "del", namespace], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(self.directory)
