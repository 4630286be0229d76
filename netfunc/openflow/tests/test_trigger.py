from holocast_openflow.config import Trigger
from holocast_openflow.trigger import Meter

T = Trigger()
END = 10.0


def feed(*intervals: float, t: Trigger = T) -> list[bool]:
    meter, at, out = Meter(), 100.0, []
    meter.observe(t, END, at, at)
    for interval in intervals:
        at += interval
        out.append(meter.observe(t, END, at, at) is not None)
    return out


def test_third_long_interval_fires() -> None:
    assert feed(0.033, 0.2, 0.2, 0.2, 0.2) == [False, False, False, True, False]


def test_exactly_the_threshold_does_not() -> None:
    assert not any(feed(*[0.125] * 9, t=Trigger(interval=0.125)))


def test_a_good_interval_starts_over() -> None:
    assert not any(feed(0.2, 0.2, 0.1, 0.2, 0.2))


def test_packets_in_a_bunch_are_one() -> None:
    assert feed(0.2, 0.001, 0.2, 0.001, 0.2) == [False, False, False, False, True]


def test_a_viewer_that_was_away() -> None:
    assert not any(feed(0.2, 0.2, END, 0.2))


def test_silence_of_a_live_flow_fires_once() -> None:
    meter = Meter()
    for n in range(T.live):
        assert meter.silence(T, n * 0.033 + 5) is None, "not live yet"
        meter.observe(T, END, n * 0.033, n * 0.033)
    last = meter.seen
    assert meter.silence(T, last + 0.44) is None
    assert "450 ms" in (meter.silence(T, last + 0.4501) or "")
    assert meter.silence(T, last + 5) is None
    meter.observe(T, END, last + 5.1, last + 5.1)
    assert meter.silence(T, last + 6) is not None
