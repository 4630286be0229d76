"""Open vSwitch with user-space datapath in network namespaces.

Lab:      relay ── 1 s1 11‥1n ══ paths 1‥n ══ 11‥1n s2 1 ── viewer
EdgeLab:  relay ── 1 s1 11‥1n ══ paths 1‥n ══ eBPF edge, a router ── viewer

Everything is in namespaces and a directory of its own, and is removed in the end.
"""

import ctypes
import errno
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
OPENFLOW, REST = 6653, 8480  # ports are free in the namespace
WINDOW = 50  # packets that fit the socket buffer of a switch's port
CLONE_NEWNET, SO_RCVBUFFORCE, ETH_P_ALL = 0x40000000, 33, 3  # Linux

libc = ctypes.CDLL(None, use_errno=True)


def missing() -> str | None:
    """Return the reason why the lab is unavailable, None if it is available."""
    if os.geteuid() != 0:
        return "needs root, to make network namespaces"
    tools = [t for t in TOOLS if not shutil.which(t)]
    return f"needs {', '.join(tools)} (Debian: openvswitch-switch iproute2 ethtool)" if tools else None


def run(*command: str) -> str:
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    """Enter a network namespace: sockets created inside stay there."""
    with open("/proc/thread-self/ns/net") as home, open(f"/run/netns/{namespace}") as away:
        if libc.setns(away.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns {namespace}")
        try:
            yield
        finally:
            libc.setns(home.fileno(), CLONE_NEWNET)


def wait(what: str, until: Callable[[], Any], seconds: float = 30) -> Any:
    """Wait until a condition holds, and return its value."""
    deadline = time.monotonic() + seconds
    while not (value := until()):
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.001)
    return value


def listens(path: Path) -> bool:
    """Tell whether a process accepts connections at a UNIX socket."""
    with socket.socket(socket.AF_UNIX) as s:
        return s.connect_ex(str(path)) == 0


@dataclass(frozen=True)
class Seen:
    """A UDP packet seen on a path or at the viewer."""

    number: int
    tos: int
    time: float


class Tap:
    """Captures packets to the viewer on a device."""

    def __init__(self, namespace: str, device: str, *, sent: bool = False) -> None:
        """Capture packets received on the device, or sent on it."""
        self.sent = sent
        with inside(namespace):
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            self.socket.bind((device, ETH_P_ALL))
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        self.socket.setblocking(False)

    def read(self) -> list[Seen]:
        """Return the numbered packets since the last call."""
        out: list[Seen] = []
        while True:
            try:
                frame, address = self.socket.recvfrom(2048)
            except BlockingIOError:
                return out
            except OSError as e:
                if e.errno != errno.ENETDOWN:  # reported once
                    raise
                continue
            if (address[2] == socket.PACKET_OUTGOING) != self.sent or frame[12:14] != b"\x08\x00":
                continue
            if frame[23] == socket.IPPROTO_UDP and frame[30:34] == socket.inet_aton(VIEWER):
                out.append(Seen(struct.unpack_from("!I", frame, 42)[0], frame[15], time.monotonic()))


class Lab:
    """The switches, hosts and controller."""

    switch_ports: tuple[tuple[str, int, str, str], ...] = (("s1", 1, "relay", "a"), ("s2", 2, "viewer", "b"))

    def __init__(self, paths: int = 3) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="ho-openflow-"))
        self.prefix = f"ho{os.getpid()}"
        self.switches, self.relay, self.viewer, self.edge = self.namespaces = [f"{self.prefix}{x}" for x in "srve"]
        self.paths = range(1, paths + 1)
        self.children: list[subprocess.Popen[bytes]] = []
        self.controller: subprocess.Popen[bytes] | None = None
        self.sent = self.passed = 0
        try:
            self._network()
            self._start_ovs()
            self.taps = {i: Tap(self.switches, f"p{i}a", sent=True) for i in self.paths}
            self.arrivals, self.progress = Tap(self.viewer, "eth0"), Tap(self.viewer, "eth0")
            self.downlink = self._udp(self.relay, RELAY, tos=2)  # ECT(0), as quic-go marks
            self.uplink = self._udp(self.viewer, VIEWER)
        except BaseException:
            self.close()
            raise

    def _network(self) -> None:
        for namespace in self.namespaces:
            run("ip", "netns", "add", namespace)
            run("ip", "-n", namespace, "link", "set", "lo", "up")
        self._host(self.relay, f"{RELAY}/24", self.switches, "relay")
        self._host(self.viewer, f"{VIEWER}/24", self.switches, "viewer")
        for i in self.paths:
            self._veth(self.switches, f"p{i}a", self.switches, f"p{i}b")

    def _host(self, host: str, address: str, switch: str, device: str) -> None:
        self._veth(switch, device, host, "eth0")
        run("ip", "-n", host, "addr", "add", address, "dev", "eth0")
        # The user-space datapath does not complete checksums.
        run("ip", "netns", "exec", host, "ethtool", "-K", "eth0", "tx", "off")

    def _veth(self, namespace: str, device: str, peer: str, peer_device: str) -> None:
        run("ip", "-n", namespace, "link", "add", device, "type", "veth", "peer", "name", peer_device, "netns", peer)
        run("ip", "-n", namespace, "link", "set", device, "up")
        run("ip", "-n", peer, "link", "set", peer_device, "up")

    def _start_ovs(self) -> None:
        d = self.directory
        self.env = os.environ | {f"OVS_{name}DIR": str(d) for name in ("RUN", "DB", "LOG", "SYSCONF")}
        self.db = f"unix:{d}/db.sock"
        run("ovsdb-tool", "create", f"{d}/conf.db", "/usr/share/openvswitch/vswitch.ovsschema")
        quiet = ("-vconsole:off", "-vsyslog:off", "-vfile:info", f"--log-file={d}/ovs.log")
        self._spawn("ovsdb-server", f"{d}/conf.db", f"--remote=p{self.db}", f"--unixctl={d}/db.ctl", *quiet)
        wait("ovsdb-server", lambda: listens(d / "db.sock"))
        self.vsctl("--no-wait", "init")
        self._spawn("ovs-vswitchd", self.db, f"--unixctl={d}/vswitchd.ctl", *quiet)
        for switch, dpid, host, end in self.switch_ports:
            ports = [(host, 1), *((f"p{i}{end}", 10 + i) for i in self.paths)]
            command = ["add-br", switch, "--", "set", "bridge", switch, "datapath_type=netdev", "fail_mode=secure",
                       "protocols=OpenFlow13", f"other-config:datapath-id={dpid:016x}"]  # fmt: skip
            for device, number in ports:
                command += ["--", "add-port", switch, device]
                command += ["--", "set", "interface", device, f"ofport_request={number}"]
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
        """Start the controller, and wait until both switches have their rules."""
        conf = self.directory / "openflow.yaml"
        settings = {
            "token": TOKEN,
            "listen": f"0.0.0.0:{REST}",
            "openflow": f"127.0.0.1:{OPENFLOW}",
            "state": f"{self.directory}/state.json",
            "towards": [f"{VIEWER}/32"],
            "rearm": "300ms",
            "trigger": {"interval": "300ms", "silence": "0s"},  # higher, for busy machines
        }
        conf.write_text(yaml.safe_dump(settings | self._ends()))
        with (self.directory / "controller.log").open("ab") as log:
            self.controller = self._spawn(
                sys.executable, "-m", "holocast_openflow", str(conf), cwd=HERE.parent, stdout=log, stderr=log
            )
        wait("REST", self._answers, 60)
        wait("both switches", self._knows_ports, 60)

    def _ends(self) -> dict[str, Any]:
        ports = {i: 10 + i for i in self.paths}
        return {name: {"dpid": dpid, "access": [1], "paths": ports} for name, dpid in (("sender", 1), ("receiver", 2))}

    def _answers(self) -> bool:
        try:
            status, _ = self.call("GET", "/v1/status")
        except OSError:
            return False
        return status == 200

    def _knows_ports(self) -> bool:
        decisions = self.call("GET", "/v1/decisions?since=0")[1]["decisions"]
        known = [d for d in decisions if d["kind"] == "path" and d["to"] == list(self.paths)]
        return len(known) >= len(self.switch_ports)

    def stop_controller(self) -> None:
        """Kill the controller."""
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

    def send(self, packets: int, interval: float = 0.003) -> None:
        """Send numbered packets from the relay to the viewer.

        At most WINDOW packets are in flight: on a busy machine, the switches may stall until their sockets overflow.
        """
        for _ in range(packets):
            wait("earlier packets", self._fits_window)
            self.downlink.sendto(struct.pack("!I", self.sent) + os.urandom(1000), (VIEWER, 5000))
            self.sent += 1
            time.sleep(interval)

    def _fits_window(self) -> bool:
        self.passed = max([self.passed, *(s.number + 1 for s in self.progress.read())])
        return self.sent - self.passed < WINDOW

    def request(self, *intervals: float, length: int = 250) -> None:
        """Send uplink packets of an IP length from the viewer, each after an interval."""
        for interval in intervals:
            time.sleep(interval)
            self.uplink.sendto(bytes(length - 28), (RELAY, 5000))

    def stall(self) -> None:
        """Send the uplink packets of a stalled stream until the trigger fires.

        If the machine itself stalls, the intervals differ and the trigger may need another attempt.
        """
        before = self._triggers()
        for _ in range(20):
            self.request(*[0.033] * 6, 0.4, 0.4, 0.4)
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline:
                if self._triggers() > before:
                    return
                time.sleep(0.01)
        raise AssertionError("the trigger did not fire")

    def _triggers(self) -> int:
        decisions = self.call("GET", "/v1/decisions?since=0")[1]["decisions"]
        return sum(d["kind"] in ("trigger", "start") for d in decisions)

    def seen(self, settle: float = 0.3, packets: int = 0) -> tuple[dict[int, list[Seen]], list[Seen]]:
        """Return the packets on each path and at the viewer since the last call.

        Wait until the viewer has that many packets, then until none has arrived for settle
        seconds. Counting iterations rather than time makes a stalled machine wait longer.
        """
        on: dict[int, list[Seen]] = {i: [] for i in self.taps}
        got: list[Seen] = []
        deadline = time.monotonic() + 120
        looks, step = 0, 0.01
        while looks * step < settle:
            time.sleep(step)
            new = self.arrivals.read()
            got += new
            for i, tap in self.taps.items():
                passed = tap.read()
                on[i] += passed
                new += passed
            missing = len(got) < packets and time.monotonic() < deadline
            looks = 0 if new or missing else looks + 1
        return on, got

    def call(self, method: str, path: str, body: Any = None, token: str = TOKEN) -> tuple[int, Any]:
        """Call the controller; return status and JSON."""
        with self.open(method, path, body, token) as answer:
            raw = answer.read()
            return answer.status, json.loads(raw) if raw else None

    def open(self, method: str, path: str, body: Any = None, token: str = TOKEN) -> Any:
        """Call the controller; return the open response."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{REST}{path}", data, {"Authorization": f"Bearer {token}"}, method=method
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with inside(self.switches):
                return opener.open(request, timeout=20)
        except urllib.error.HTTPError as e:
            return e

    def show_logs(self) -> None:
        """Print the logs, which pytest shows for failed tests."""
        for log in ("controller.log", "edge.log"):
            with suppress(FileNotFoundError):
                print((self.directory / log).read_text())

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
        for namespace in self.namespaces:
            subprocess.run(["ip", "netns", "del", namespace], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(self.directory)


class EdgeLab(Lab):
    """The paths end at an eBPF edge that removes duplicates and runs Algorithm 1."""

    switch_ports = (("s1", 1, "relay", "a"),)
    gateway = "10.9.0.254"

    def _network(self) -> None:
        for namespace in self.namespaces:
            run("ip", "netns", "add", namespace)
            run("ip", "-n", namespace, "link", "set", "lo", "up")
        self._host(self.relay, f"{RELAY}/24", self.switches, "relay")
        self._host(self.viewer, f"{VIEWER}/32", self.edge, "lan0")
        for i in self.paths:
            self._veth(self.switches, f"p{i}a", self.edge, f"p{i}b")
            run("ip", "-n", self.edge, "addr", "add", f"10.9.{i}.254/24", "dev", f"p{i}b")
            # A switch does not answer ARP; without a next hop the edge considers the path down.
            neighbour = ["neigh", "replace", f"10.9.{i}.1", "lladdr", "02:00:00:00:00:01"]
            run("ip", "-n", self.edge, *neighbour, "dev", f"p{i}b", "nud", "permanent")
        self._veth(self.switches, "mgmt", self.edge, "mgmt")
        for namespace, address in ((self.switches, "10.10.0.1/24"), (self.edge, "10.10.0.2/24")):
            run("ip", "-n", namespace, "addr", "add", address, "dev", "mgmt")
        run("ip", "-n", self.edge, "addr", "add", f"{self.gateway}/24", "dev", "p1b")
        run("ip", "-n", self.edge, "addr", "add", "10.9.8.254/24", "dev", "lan0")
        for namespace, *route in (
            (self.relay, f"{VIEWER}/32", "via", self.gateway),
            (self.edge, f"{VIEWER}/32", "dev", "lan0"),
            (self.viewer, "10.9.8.254/32", "dev", "eth0"),
            (self.viewer, "default", "via", "10.9.8.254"),
        ):
            run("ip", "-n", namespace, "route", "add", *route)
        for setting in ("ip_forward=1", "conf.all.rp_filter=0", *(f"conf.p{i}b.rp_filter=0" for i in self.paths)):
            run("ip", "netns", "exec", self.edge, "sysctl", "-qw", f"net.ipv4.{setting}")

    def _ends(self) -> dict[str, Any]:
        links = json.loads(run("ip", "-n", self.edge, "-json", "link"))
        macs = {link["ifname"]: link["address"] for link in links}
        paths = {i: {"port": 10 + i, "mac": macs[f"p{i}b"]} for i in self.paths}
        return {"sender": {"dpid": 1, "access": [1], "paths": paths}}

    def start_edge(self, program: Path, **elimination: Any) -> None:
        """Start the edge, and wait until it is registered."""
        token = self.directory / "token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        name = f"ho-openflow-{os.getpid()}"
        settings = {
            "name": name,
            "role": "receiver",
            "paths": [{"index": i, "interface": f"p{i}b", "peer": f"10.9.{i}.1"} for i in self.paths],
            "receiver": {"behind": [f"{VIEWER}/32"]},
            "controller": {"url": f"http://10.10.0.1:{REST}", "token": str(token)},
            "elimination": elimination,
            "socket": f"{self.directory}/edge.sock",
            "http": "",
        }
        conf = self.directory / "edge.yaml"
        conf.write_text(yaml.safe_dump(settings))
        # ip netns exec would hide the bpf file system.
        command = ["nsenter", f"--net=/run/netns/{self.edge}", str(program), "run", "--config", str(conf)]
        with (self.directory / "edge.log").open("ab") as log:
            self.children.append(subprocess.Popen(command, stdout=log, stderr=log))
        wait("the edge", lambda: self.call("GET", "/v1/edges")[1]["edges"], 30)
