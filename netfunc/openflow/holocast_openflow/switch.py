"""The os-ken application, which keeps the switches in line with the engine."""

import logging
import threading
import zlib
from typing import Any

from os_ken.base import app_manager
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, DEAD_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.ofproto import ofproto_v1_3 as of
from os_ken.ofproto import ofproto_v1_3_parser as parser

from . import rules, uplink
from .config import Config, Switch
from .control import Control
from .messages import Address, Observation
from .paths import NONE, Paths
from .policy import Flow

LOG = logging.getLogger(__name__)


class Duplication(app_manager.OSKenApp):  # type: ignore[misc]
    """Controls both switches. Handlers run in an os-ken thread; route and forget may be called from any thread."""

    OFP_VERSIONS = (of.OFP_VERSION,)

    def __init__(self, *args: Any, conf: Config, **kwargs: Any) -> None:
        """Create the controller from a configuration."""
        super().__init__(*args, **kwargs)
        self.conf = conf
        self.switches: dict[int, Switch] = {s.dpid: s for s in (conf.sender, conf.receiver) if s}
        self.datapaths: dict[int, Any] = {}
        self.live: dict[int, set[int]] = {}  # ports that are up, by switch
        self.default = conf.sender.default
        self.groups: dict[Address, tuple[int, Paths]] = {}  # group number and desired paths at the sender
        self.barriers: dict[int, list[tuple[Address, int]]] = {}
        self.lock = threading.RLock()
        self.control = Control(conf, self.route, self.forget)

    # From the engine

    def route(self, flows: list[Flow]) -> None:
        """Send the flows' path sets to the sender."""
        with self.lock:
            dp = self.datapaths.get(self.conf.sender.dpid)
            for flow in flows:
                number, known = self.groups.get(flow.destination, (self._number(flow.destination), None))
                self.groups[flow.destination] = (number, flow.paths)
                if dp:
                    self._send(dp, rules.group(dp, self.conf.sender, self.default, number, flow.paths))
                    if known is None:
                        self._send(dp, rules.steer(dp, self.conf.sender, number, flow.destination))
            if dp:
                self._confirm(dp, [(f.destination, f.version) for f in flows])

    def forget(self, destinations: list[Any]) -> None:
        """Remove ended flows from the sender."""
        with self.lock:
            dp = self.datapaths.get(self.conf.sender.dpid)
            for destination in destinations:
                number, _ = self.groups.pop(destination, (None, NONE))
                if dp and number is not None:
                    self._send(dp, rules.remove(dp, number))

    def _number(self, destination: Address) -> int:
        """Return a group number, the same after a restart if possible."""
        taken = {number for number, _ in self.groups.values()}
        number = zlib.crc32(destination.packed) & 0x7FFFFFFF
        while number in taken or number == 0:
            number = (number + 1) & 0x7FFFFFFF
        return number

    # From the switches

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def connected(self, event: Any) -> None:
        """Configure a switch that connected, without interrupting its traffic."""
        dp = event.msg.datapath
        switch = self.switches.get(dp.id)
        if switch is None:
            LOG.warning("switch %#x is not configured", dp.id)
            return
        LOG.info("switch %#x connected", dp.id)
        with self.lock:
            self.datapaths[dp.id] = dp
            self._install(dp)
        with self.control.act() as (engine, _):
            flows = list(engine.flows.values()) if switch is self.conf.sender else []
            with self.lock:
                for flow in flows:
                    self.groups[flow.destination] = (
                        self.groups.get(flow.destination, (self._number(flow.destination), NONE))[0],
                        flow.paths,
                    )
                self._install_groups(dp)
                self._confirm(dp, [(f.destination, f.version) for f in flows])

    @set_ev_cls(ofp_event.EventOFPStateChange, DEAD_DISPATCHER)
    def disconnected(self, event: Any) -> None:
        """Record that a switch disconnected; it keeps its rules."""
        dp = event.datapath
        with self.lock:
            if dp is not None and dp.id in self.datapaths and self.datapaths[dp.id] is dp:
                del self.datapaths[dp.id]
                LOG.warning("switch %#x disconnected", dp.id)

    @set_ev_cls(ofp_event.EventOFPPortDescStatsReply, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def described(self, event: Any) -> None:
        """Record the ports of a switch."""
        self.live[event.msg.datapath.id] = {p.port_no for p in event.msg.body if _is_up(p)}
        self._ports(event.msg.datapath.id)

    @set_ev_cls(ofp_event.EventOFPPortStatus, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def port_changed(self, event: Any) -> None:
        """Record that a port went up or down."""
        msg = event.msg
        live = self.live.setdefault(msg.datapath.id, set())
        live.discard(msg.desc.port_no)
        if msg.reason != of.OFPPR_DELETE and _is_up(msg.desc):
            live.add(msg.desc.port_no)
        self._ports(msg.datapath.id)

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet_in(self, event: Any) -> None:
        """Process an uplink packet in the size window."""
        with self.control.act() as (engine, now):
            seen = uplink.read(bytes(event.msg.data))
            if seen and self.conf.uplink[0] <= seen[2] <= self.conf.uplink[1]:
                engine.observe(now, "", Observation(now, seen[0], seen[1]))

    @set_ev_cls(ofp_event.EventOFPBarrierReply, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def confirmed(self, event: Any) -> None:
        """Record that path sets are in force."""
        with self.lock:
            done = self.barriers.pop(event.msg.xid, [])
        with self.control.act() as (engine, _):
            for destination, version in done:
                engine.installed(destination, version)

    @set_ev_cls(ofp_event.EventOFPErrorMsg, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def refused(self, event: Any) -> None:
        """Log a refused message. Of adding and modifying a group, which are sent together, one always fails."""
        msg = event.msg
        if msg.type == of.OFPET_GROUP_MOD_FAILED and msg.code in (of.OFPGMFC_GROUP_EXISTS, of.OFPGMFC_UNKNOWN_GROUP):
            return
        LOG.error("switch %#x refused a message: type %d, code %d", msg.datapath.id or 0, msg.type, msg.code)

    # Helpers

    def _ports(self, dpid: int) -> None:
        switch = self.switches.get(dpid)
        if switch is None:
            return
        up = frozenset(i for i, p in switch.paths.items() if p.number in self.live.get(dpid, ()))
        with self.control.act() as (engine, now):
            engine.ports(now, dpid, up)
            usable = frozenset(self.conf.sender.paths)
            for known in engine.up.values():
                usable &= known
        default = min(usable, default=self.conf.sender.default)
        with self.lock:
            if default != self.default:
                LOG.info("packets without a flow use path %d", default)
                self.default = default
                for dp in self.datapaths.values():
                    self._install(dp)
                    self._install_groups(dp)

    def _install(self, dp: Any) -> None:
        switch = self.switches[dp.id]
        if switch is self.conf.sender:
            self._send(dp, rules.sender(dp, self.conf, self.default))
        else:
            self._send(dp, rules.receiver(dp, switch, self.default))

    def _install_groups(self, dp: Any) -> None:
        if dp.id == self.conf.sender.dpid:
            for destination, (number, paths) in self.groups.items():
                self._send(dp, rules.group(dp, self.conf.sender, self.default, number, paths))
                self._send(dp, rules.steer(dp, self.conf.sender, number, destination))

    def _send(self, dp: Any, messages: Any) -> None:
        for message in messages:
            dp.send_msg(message)

    def _confirm(self, dp: Any, flows: list[tuple[Address, int]]) -> None:
        barrier = parser.OFPBarrierRequest(dp)
        dp.set_xid(barrier)
        self.barriers[barrier.xid] = flows
        dp.send_msg(barrier)


def _is_up(port: Any) -> bool:
    return not port.config & of.OFPPC_PORT_DOWN and not port.state & of.OFPPS_LINK_DOWN
