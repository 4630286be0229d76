#!/usr/bin/python3
"""Table I of Qian et al. in Mininet: five paths between two Open vSwitch switches.

relay 10.0.0.1 ── 1 s1 2‥6 ══ paths 1‥5 ══ 2‥6 s2 1 ── viewer 10.0.0.2

Run it as root with the system's Python (Debian: mininet), next to the controller with
table1.yaml. Without a command it opens Mininet's prompt; otherwise the relay runs the
command while the delays vary, from 10 s to 50 s.
"""

import argparse
import random
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

from mininet.cli import CLI
from mininet.link import Link, TCIntf, TCLink
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.node import OVSSwitch, RemoteController


@dataclass(frozen=True)
class Path:
    """A row of the table. Conditions apply to each direction."""

    rate: int  # Mbit/s
    delay: int  # ms
    loss: float  # %
    most: int  # ms; during background traffic the delay is between delay and this


TABLE = (
    Path(400, 20, 0.05, 70),
    Path(400, 30, 0.05, 35),
    Path(150, 100, 0.05, 110),
    Path(50, 100, 0.05, 110),
    Path(50, 30, 0, 35),
)
BEGIN, END = 10.0, 50.0  # of the background traffic, s
HOLD = (0.05, 0.2)  # how long a drawn delay holds, s
QUEUE = 1000  # packets


def has_qdisc(*kind: str) -> bool:
    """Report whether the kernel has a queueing discipline."""
    script = f"ip link set lo up && tc qdisc add dev lo root {' '.join(kind)}"
    return subprocess.run(["unshare", "--net", "sh", "-c", script], check=False, capture_output=True).returncode == 0


def build(datapath: str, controller: str, netem: bool, htb: bool) -> Mininet:
    """Create hosts, switches and paths."""
    net = Mininet(switch=OVSSwitch, controller=None, autoSetMacs=True)
    host, _, port = controller.rpartition(":")
    net.addController("c0", controller=RemoteController, ip=host, port=int(port))
    s1, s2 = (
        net.addSwitch(name, datapath=datapath, protocols="OpenFlow13", failMode="secure") for name in ("s1", "s2")
    )
    relay, viewer = net.addHost("relay", ip="10.0.0.1/24"), net.addHost("viewer", ip="10.0.0.2/24")
    net.addLink(relay, s1, cls=Link)
    net.addLink(viewer, s2, cls=Link)
    for path in TABLE:
        if htb:
            net.addLink(s1, s2, cls=TCLink, **conditions(path, path.delay, netem))
        else:
            net.addLink(s1, s2, cls=Link)
    net.build()
    for node in (relay, viewer):
        # The user-space datapath does not complete checksums.
        node.cmd(f"ethtool -K {node.defaultIntf()} tx off")
    return net


def conditions(path: Path, delay: float, netem: bool) -> dict[str, object]:
    """Return a link's options for Mininet."""
    out: dict[str, object] = {"bw": path.rate, "use_htb": True}
    if netem:
        out |= {"delay": f"{delay:.1f}ms", "loss": path.loss, "max_queue_size": QUEUE}
    return out


def vary(intf: TCIntf, path: Path, begin: float, stop: threading.Event) -> None:
    """Vary the delay of one direction during background traffic."""
    stop.wait(begin + BEGIN - time.monotonic())
    while time.monotonic() < begin + END and not stop.is_set():
        set_delay(intf, path, random.uniform(path.delay, path.most))
        stop.wait(random.uniform(*HOLD))
    set_delay(intf, path, path.delay)


def set_delay(intf: TCIntf, path: Path, delay: float) -> None:
    """Change Mininet's netem, below its class 5:1, in place."""
    netem = ["netem", "delay", f"{delay:.1f}ms", "loss", f"{path.loss}%", "limit", str(QUEUE)]
    subprocess.run(["tc", "qdisc", "change", "dev", intf.name, "parent", "5:1", "handle", "10:", *netem], check=False)


def main() -> int:
    """Build the network, then open the prompt or run the command."""
    options = argparse.ArgumentParser(description="Table I of the packet-duplication paper in Mininet.")
    options.add_argument("--controller", default="127.0.0.1:6653", help="OpenFlow address of the controller")
    options.add_argument("--datapath", choices=("kernel", "user"), default="kernel", help="of Open vSwitch")
    options.add_argument("command", nargs="*", help="command to run in the relay")
    arguments = options.parse_args()
    netem, htb = has_qdisc("netem", "delay", "1ms"), has_qdisc("handle", "5:", "htb", "default", "1")
    if not netem:
        what = "rates" if htb else "nothing (no HTB either)"
        print(
            f"table1: this kernel has no netem (CONFIG_NET_SCH_NETEM): the paths emulate {what} of Table I, but "
            "neither delays nor loss. `holocast-lab lab run table1` emulates them on any kernel.",
            file=sys.stderr,
        )
    setLogLevel("warning")
    net = build(arguments.datapath, arguments.controller, netem, htb)
    stop = threading.Event()
    threads = []
    try:
        net.start()
        if not net.waitConnected(timeout=30):
            print(f"table1: the switches cannot connect to the controller at {arguments.controller}", file=sys.stderr)
            return 1
        begin = time.monotonic()
        if netem:
            for path, link in zip(TABLE, net.links[2:], strict=True):
                for intf in (link.intf1, link.intf2):
                    threads.append(threading.Thread(target=vary, args=(intf, path, begin, stop)))
                    threads[-1].start()
        if not arguments.command:
            CLI(net)
            return 0
        return int(net["relay"].popen(arguments.command, stdout=None, stderr=None).wait())
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        net.stop()


if __name__ == "__main__":
    sys.exit(main())
