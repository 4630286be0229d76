"""The configuration file. openflow.yaml lists every setting."""

import dataclasses
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from .paths import MAX_PATHS

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
MODES = ("auto", "duplicate", "redirect", "off")


class ConfigError(Exception):
    """An error of one sentence that names the wrong setting."""


@dataclass(frozen=True)
class Port:
    """The end of a path at a switch."""

    number: int
    mac: str | None = None  # next hop if it is a router; None keeps the MACs


@dataclass(frozen=True)
class Switch:
    """An OpenFlow switch at one end of the paths."""

    dpid: int
    access: tuple[int, ...]  # ports to the hosts
    paths: Mapping[int, Port]  # by path index

    @property
    def default(self) -> int:
        """The path of packets that are not duplicated."""
        return min(self.paths)


@dataclass(frozen=True)
class Trigger:
    """Conditions that start duplication (section III.A, steps 1 and 2). Times in seconds."""

    interval: float = 0.150  # a longer interval between two uplink packets of a viewer is late
    count: int = 3  # consecutive late intervals
    silence: float = 0.450  # without packets of a live flow; 0 = ignored
    merge: float = 0.010  # packets that follow another this closely count as one
    live: int = 5  # packets that make a flow live


@dataclass(frozen=True)
class TLS:
    """TLS files of the REST server, PEM."""

    certificate: str
    key: str
    client_ca: str | None = None  # requires client certificates (mTLS)


@dataclass(frozen=True)
class Config:
    """The parsed configuration."""

    sender: Switch
    receiver: Switch | None  # None: the paths end at an eBPF edge
    towards: tuple[Network, ...]
    listen: tuple[str, int] = ("127.0.0.1", 8480)
    token: str | None = None
    tls: TLS | None = None
    openflow: tuple[str, int] = ("127.0.0.1", 6653)
    state: Path | None = None
    mode: str = "auto"
    uplink: tuple[int, int] = (200, 300)  # bytes of the IP packet
    trigger: Trigger = field(default_factory=Trigger)
    report: float = 1.0  # seconds between reports of an edge; lost after three
    rearm: float = 1.0  # seconds from start or single path to the next trigger
    end: float = 10.0  # seconds without uplink until a flow has ended
    forget: float = 300.0  # seconds until it is forgotten
    flows: int = 256  # maximum


def load(path: Path) -> Config:
    """Read a configuration file."""
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as e:
        raise ConfigError(f"configuration {path}: {e}") from e
    return parse(settings)


def parse(settings: object) -> Config:
    """Validate settings parsed from YAML."""
    top = _Section("", settings)
    sender, receiver = _switch(top.section("sender")), None
    if top.has("receiver"):
        receiver = _switch(top.section("receiver"))
        if receiver.paths.keys() != sender.paths.keys():
            raise ConfigError("sender.paths and receiver.paths must have the same paths")
        if receiver.dpid == sender.dpid:
            raise ConfigError("sender.dpid and receiver.dpid must differ")
    values: dict[str, Any] = {"sender": sender, "receiver": receiver, "towards": _towards(top)}
    for name in ("listen", "openflow"):
        if top.has(name):
            values[name] = _address(name, top.get(name, str))
    for name, kind in (("token", str), ("mode", str), ("flows", int)):
        if top.has(name):
            values[name] = top.get(name, kind)
    for name in ("report", "rearm", "end", "forget"):
        if top.has(name):
            values[name] = top.duration(name)
    if top.has("tokenFile"):
        try:
            values["token"] = Path(top.get("tokenFile", str)).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as e:
            raise ConfigError(f"tokenFile: {e}") from e
    if top.has("state"):
        values["state"] = Path(top.get("state", str))
    if top.has("tls"):
        tls = top.section("tls")
        client_ca = tls.get("clientCA", str) if tls.has("clientCA") else None
        values["tls"] = TLS(tls.get("certificate", str), tls.get("key", str), client_ca)
        tls.finish()
    if top.has("uplink"):
        uplink = top.section("uplink")
        values["uplink"] = (uplink.get("min", int), uplink.get("max", int))
        uplink.finish()
    if top.has("trigger"):
        values["trigger"] = _trigger(top.section("trigger"))
    top.finish()
    return _check(Config(**values))


def _check(c: Config) -> Config:
    t = c.trigger
    for wrong, sentence in (
        (
            not c.token and not (c.tls and c.tls.client_ca),
            "token, tokenFile or tls.clientCA must be set: every call needs one",
        ),
        (bool(c.token) and bool(re.search(r"\s", c.token or "")), "token contains white space"),
        (c.mode not in MODES, f"mode {c.mode!r} is not one of {', '.join(MODES)}"),
        (not 20 <= c.uplink[0] <= c.uplink[1] <= 9000, "uplink.min and uplink.max must be from 20 to 9000 bytes"),
        (t.interval <= 0, "trigger.interval must be above 0"),
        (t.count < 1 or t.live < 1, "trigger.count and trigger.live must be at least 1"),
        (t.silence != 0 and t.silence < t.interval, "trigger.silence must be 0 (never) or at least trigger.interval"),
        (not 0 <= t.merge < t.interval, "trigger.merge must be at least 0 and below trigger.interval"),
        (c.end <= max(t.interval, t.silence), "end must be above trigger.interval and trigger.silence"),
        (c.forget < c.end, "forget must be at least end"),
        (c.report < 0.01, "report must be at least 10ms"),
        (c.flows < 1, "flows must be at least 1"),
    ):
        if wrong:
            raise ConfigError(sentence)
    return c


class _Section:
    """A mapping of the file; settings not read are unknown."""

    def __init__(self, name: str, settings: object) -> None:
        if not isinstance(settings, dict):
            raise ConfigError(f"{name or 'the configuration'} is not a mapping")
        self.name = name
        self.settings = settings
        self.asked: set[str] = set()

    def path(self, name: object) -> str:
        return f"{self.name}.{name}" if self.name else str(name)

    def has(self, name: str) -> bool:
        self.asked.add(name)
        return self.settings.get(name) is not None

    def get(self, name: str, kind: type) -> Any:
        self.asked.add(name)
        value = self.settings.get(name)
        if value is None:
            raise ConfigError(f"{self.path(name)} is missing")
        if type(value) is not kind:
            word = {str: "a string", int: "a whole number", list: "a list", dict: "a mapping"}[kind]
            raise ConfigError(f"{self.path(name)} is not {word}")
        return value

    def section(self, name: str) -> "_Section":
        return _Section(self.path(name), self.get(name, dict))

    def duration(self, name: str) -> float:
        text = self.get(name, str)
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m)", text)
        if not match:
            raise ConfigError(f"{self.path(name)} {text!r} is not a time such as 150ms, 1.5s or 5m")
        return float(match[1]) * {"ms": 1e-3, "s": 1.0, "m": 60.0}[match[2]]

    def finish(self) -> None:
        for name in self.settings:
            if name not in self.asked:
                raise ConfigError(f"{self.path(name)} is not a setting")


def _switch(s: _Section) -> Switch:
    access = s.get("access", list)
    if not access or not all(_is_port(p) for p in access):
        raise ConfigError(f"{s.path('access')} is not a list of port numbers")
    paths = {}
    for index, entry in s.get("paths", dict).items():
        where = s.path(f"paths.{index}")
        if type(index) is not int or not 1 <= index <= MAX_PATHS:
            raise ConfigError(f"{where}: a path's index is from 1 to {MAX_PATHS}")
        port = entry if isinstance(entry, dict) else {"port": entry}
        if not _is_port(port.get("port")) or port.keys() - {"port", "mac"}:
            raise ConfigError(f"{where} is not a port number, or a mapping of port and mac")
        mac = port.get("mac")
        if mac is not None and not re.fullmatch(r"([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}", str(mac)):
            raise ConfigError(f"{where}.mac is not a MAC address such as 02:00:00:00:00:01")
        paths[index] = Port(port["port"], mac)
    ports = [*access, *(p.number for p in paths.values())]
    if not paths or len(set(ports)) < len(ports):
        raise ConfigError(f"{s.path('paths')} must have at least one path, and each port one use")
    dpid = s.get("dpid", int)
    if not 0 < dpid < 1 << 64:
        raise ConfigError(f"{s.path('dpid')} is not a datapath ID of 64 bits")
    s.finish()
    return Switch(dpid, tuple(access), paths)


def _is_port(number: object) -> bool:
    return type(number) is int and 1 <= number <= 0xFF00 - 1


def _trigger(s: _Section) -> Trigger:
    values: dict[str, Any] = {}
    for f in dataclasses.fields(Trigger):
        if s.has(f.name):
            values[f.name] = s.duration(f.name) if f.type is float else s.get(f.name, int)
    s.finish()
    return Trigger(**values)


def _towards(s: _Section) -> tuple[Network, ...]:
    networks = s.get("towards", list)
    try:
        return tuple(ipaddress.ip_network(n) for n in networks if isinstance(n, str) or _refuse(n))
    except ValueError as e:
        raise ConfigError(f"towards: {e}") from e


def _refuse(value: object) -> bool:
    raise ValueError(f"{value!r} is not a prefix")


def _address(name: str, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"{name} {text!r} is not host:port")
    return host.strip("[]") or "0.0.0.0", int(port)
