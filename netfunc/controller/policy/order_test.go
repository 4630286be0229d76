package policy

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"holocast/netfunc/api"
	"holocast/netfunc/pathset"
)

// The sender is signalled to duplicate only after the receiver has confirmed.
func TestReceiverConfirmsFirst(t *testing.T) {
	for name, start := range map[string]func(*world){
		"an operator": func(w *world) { w.mode(api.Duplicate, 1, 2) },
		"the trigger": func(w *world) { w.live(time.Second, 33*time.Millisecond); w.trouble() },
	} {
		t.Run(name, func(t *testing.T) {
			w := pair(t, nil)
			w.slow["b"] = true
			start(w)
			w.look()
			w.pass(2 * time.Second)
			w.report("a")
			w.report("b")
			if _, sent := w.look(); len(sent) != 0 || w.flow().Applied || w.flow().Paths.Len() < 2 {
				t.Fatalf("signalled %v before the receiver confirmed: %+v", sent, w.flow())
			}
			w.slow["b"] = false
			w.report("b")
			if _, sent := w.look(); !slices.Equal(sent, []pathset.Set{w.flow().Paths}) {
				t.Errorf("signalled %v once the receiver had confirmed", sent)
			}
			w.report("a")
			if !w.flow().Applied {
				t.Error("not applied")
			}
		})
	}
}

// Replicas to a receiver stop when it withdraws its confirmation.
func TestReceiverNoLongerReady(t *testing.T) {
	w := pair(t, nil)
	w.mode(api.Duplicate, 1, 2)
	w.report("a")
	w.deaf["a"], w.slow["b"] = true, true
	w.report("b")
	w.report("a")
	w.pass(50 * time.Millisecond)
	w.deaf["a"] = false // the first packet was lost
	w.pass(100 * time.Millisecond)
	w.report("a")
	if f := w.flow(); f.Applied || w.told["a"][viewer] != 0b01 {
		t.Errorf("%+v, told %#x", f, w.told["a"][viewer])
	}
	w.look()
	w.pass(time.Second)
	if _, sent := w.look(); len(sent) > 0 {
		t.Errorf("signalled %v repeatedly", sent)
	}
	w.slow["b"] = false
	w.report("b")
	w.report("a")
	if f := w.flow(); !f.Applied || w.told["a"][viewer] != 0b11 {
		t.Errorf("%+v, told %#x", f, w.told["a"][viewer])
	}
}

// Duplication set by an operator waits for a receiver, and stops without one.
func TestDuplicateWithoutReceiver(t *testing.T) {
	for name, away := range map[string]func(*world){
		"left":    func(w *world) { _ = w.e.Leave(w.now, "b"); w.deliver() },
		"leaving": func(w *world) { _, _ = w.e.Retire(w.now, "b"); w.deliver() },
		"lost": func(w *world) {
			for range 4 {
				w.pass(time.Second)
				w.report("a")
			}
		},
	} {
		for _, before := range []bool{true, false} {
			t.Run(name+map[bool]string{true: " before", false: " while duplicating"}[before], func(t *testing.T) {
				w := pair(t, nil)
				if before {
					away(w)
				}
				w.look()
				w.mode(api.Duplicate)
				if !before {
					w.report("a")
					if w.told["a"][viewer] != 0x1f {
						t.Fatalf("told %#x", w.told["a"][viewer])
					}
					away(w)
				}
				w.report("a")
				if p := pathset.Set(w.told["a"][viewer]); p.Len() > 1 || w.flow().Paths.Len() > 1 {
					t.Fatalf("duplicated over %s without a receiver\n%s", p, w.reasons())
				}
				w.hello("b")
				w.pass(1100 * time.Millisecond)
				w.report("b")
				w.report("a")
				if w.told["a"][viewer] != 0x1f {
					t.Errorf("told %#x when the receiver is back\n%s", w.told["a"][viewer], w.reasons())
				}
			})
		}
	}
}

// A setting that cannot take effect is refused with a reason.
func TestSetRefuses(t *testing.T) {
	w := pair(t, nil)
	for _, c := range []struct {
		dst   string
		paths pathset.Set
		want  string // "" = accepted
	}{
		{"10.9.0.8", pathset.Of(1, 5), ""},
		{"10.9.0.8", 0, ""},
		{"10.9.0.8", pathset.Of(1, 7), "has path 7; available: 1+2+3+4+5"},
		{"10.10.0.8", 0, "no edge sends to 10.10.0.8"},
	} {
		_, err := w.e.Set(w.now, netip.MustParseAddr(c.dst), api.Setting{Mode: api.Duplicate, Paths: c.paths})
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrInvalid) ||
			!strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s, paths %s: %v, want %q", c.dst, c.paths, err, c.want)
		}
	}
	if _, err := New(DefaultConfig()).Set(w.now, viewer, api.Setting{
		Mode:  api.Duplicate,
		Paths: pathset.Of(7),
	}); err != nil {
		t.Errorf("before the first edge: %v", err)
	}
}

// A receiver may leave once the senders confirm that they have stopped.
func TestRetire(t *testing.T) {
	w := pair(t, nil)
	w.mode(api.Duplicate)
	w.report("a")
	w.deaf["a"] = true
	changed, err := w.e.Retire(w.now, "b")
	w.deliver()
	if err != nil || !slices.Equal(changed, []netip.Addr{viewer}) || w.e.Applied(changed) {
		t.Fatalf("%v, %v, applied %v", changed, err, w.e.Applied(changed))
	}
	w.report("a")
	if w.e.Applied(changed) {
		t.Error("applied, though the sender heard nothing")
	}
	w.deaf["a"] = false
	w.pass(time.Second)
	w.report("a")
	if !w.e.Applied(changed) {
		t.Error("not applied")
	}
}
