"""The trigger: judges a viewer's stream by its uplink packets."""

from dataclasses import dataclass

from .config import Trigger


@dataclass
class Meter:
    """Tracks the uplink packets of one viewer as seen by one observer."""

    last: float = 0.0  # last packet counted, on the observer's clock
    seen: float = 0.0  # last packet, on our clock
    packets: int = 0  # packets counted
    run: int = 0  # consecutive long intervals
    interval: float = 0.0
    silent: bool = False  # the current silence has fired

    def observe(self, t: Trigger, end: float, at: float, now: float) -> str | None:
        """Take in a packet; return the reason if the trigger fires.

        A gap of end or more begins anew: the viewer was away.
        """
        gap = at - self.last
        self.seen, self.silent = now, False
        if self.packets == 0 or abs(gap) >= end:
            self.last, self.packets, self.run, self.interval = at, 1, 0, 0.0
            return None
        if gap < t.merge:
            return None
        self.last, self.interval = at, gap
        self.packets += 1
        self.run = self.run + 1 if gap > t.interval else 0
        if self.run < t.count:
            return None
        self.run = 0
        return f"{_ms(gap)} between uplink packets, above {_ms(t.interval)} {t.count} times in a row"

    def silence(self, t: Trigger, now: float) -> str | None:
        """Return the reason if the trigger fires for lack of packets."""
        if t.silence == 0 or self.silent or self.packets < t.live or now - self.seen < t.silence:
            return None
        self.silent, self.run = True, 0
        return f"no uplink packet of a live flow for {_ms(now - self.seen)}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"
