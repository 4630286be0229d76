import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from holocast_openflow import config

EXAMPLE = Path(__file__).parent.parent / "openflow.yaml"

MINIMAL: dict[str, Any] = {
    "sender": {"dpid": 1, "access": [1], "paths": {1: 2, 2: 3}},
    "towards": ["10.0.0.0/24", "fd00::/64"],
    "token": "x",
}


def test_minimal() -> None:
    c = config.parse(MINIMAL)
    assert c.receiver is None
    assert c.sender.default == 1
    assert c.trigger == config.Trigger(0.150, 3, 0.450, 0.010, 5)
    assert c.uplink == (200, 300)


def test_example(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    text = EXAMPLE.read_text().replace("/etc/holocast/token", str(tmp_path / "token"))
    (tmp_path / "openflow.yaml").write_text(text)
    c = config.load(tmp_path / "openflow.yaml")
    assert c.token == "secret"
    assert c.receiver is not None
    assert c.receiver.paths.keys() == c.sender.paths.keys() == {1, 2}


def test_defaults_in_example() -> None:
    """The commented settings of the example equal the defaults."""
    lines = EXAMPLE.read_text().split("# uplink:")[1]
    shown = yaml.safe_load("uplink:" + lines.replace("\n# ", "\n"))
    c = config.parse({**MINIMAL, **shown})
    assert c == config.parse(MINIMAL)


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("token", None, "token, tokenFile or tls.clientCA must be set"),
        ("token", "a b", "white space"),
        ("tokenFile", "/nonexistent", "tokenFile"),
        ("sender", None, "sender is missing"),
        ("sender.dpid", "1", "sender.dpid is not a whole number"),
        ("sender.dpid", 0, "sender.dpid is not a datapath ID"),
        ("sender.access", [], "sender.access"),
        ("sender.access", [2], "each port one use"),
        ("sender.paths", {9: 2}, "sender.paths.9: a path's index is from 1 to 8"),
        ("sender.paths", {1: {"port": 2, "mac": "x"}}, "sender.paths.1.mac"),
        ("sender.paths", {1: {"mac": "02:00:00:00:00:01"}}, "sender.paths.1"),
        ("sender.color", 1, "sender.color is not a setting"),
        ("receiver", {"dpid": 2, "access": [1], "paths": {1: 2}}, "must have the same paths"),
        ("receiver", {"dpid": 1, "access": [1], "paths": {1: 2, 2: 3}}, "must differ"),
        ("towards", ["10.0.0.1/24"], "towards"),
        ("towards", [5], "towards"),
        ("listen", "here", "listen 'here' is not host:port"),
        ("mode", "maybe", "mode 'maybe'"),
        ("uplink", {"min": 300, "max": 200}, "uplink.min"),
        ("trigger", {"interval": "fast"}, "trigger.interval 'fast' is not a time"),
        ("trigger", {"interval": "1s"}, "trigger.silence"),
        ("trigger", {"count": 0}, "trigger.count"),
        ("trigger", {"merge": "150ms"}, "trigger.merge"),
        ("end", "100ms", "end must be above"),
        ("forget", "5s", "forget"),
        ("report", "1ms", "report"),
        ("flows", 0, "flows"),
    ],
)
def test_errors(path: str, value: Any, sentence: str) -> None:
    settings = copy.deepcopy(MINIMAL)
    *sections, name = path.split(".")
    at = settings
    for section in sections:
        at = at[section]
    at[name] = value
    with pytest.raises(config.ConfigError, match=sentence):
        config.parse(settings)


def test_not_a_mapping(tmp_path: Path) -> None:
    for text in ("[]", "{", "\xff"):
        (tmp_path / "c").write_bytes(text.encode("latin-1"))
        with pytest.raises(config.ConfigError):
            config.load(tmp_path / "c")
