package router

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"holocast/internal/moqt"
)

// TestIndex checks that the indexes return the same values as a linear search.
func TestIndex(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	name := func() moqt.Namespace {
		ns := moqt.Namespace{}
		for range random.IntN(4) {
			ns = append(ns, string(rune('a'+random.IntN(3))))
		}
		return ns
	}
	under, at := newPrefixIndex[int](), newExactIndex[int]()
	values := map[int]moqt.Namespace{}
	for i := range 2000 {
		if old, there := values[i-50]; there {
			under.remove(old, i-50)
			at.remove(old, i-50)
			at.remove(old, i-50) // possibly several times
			delete(values, i-50)
		}
		values[i] = name()
		under.add(values[i], i)
		at.add(values[i], i)
		asked := name()
		var below, above, same []int
		for v, ns := range values {
			if ns.HasPrefix(asked) {
				below = append(below, v)
			}
			if asked.HasPrefix(ns) {
				above = append(above, v)
			}
			if asked.Equal(ns) {
				same = append(same, v)
			}
		}
		for what, lists := range map[string][2][]int{
			"under": {below, slices.Collect(under.under(asked))},
			"above": {above, slices.Collect(at.above(asked))},
			"at":    {same, slices.Collect(at.get(asked))},
		} {
			slices.Sort(lists[0])
			slices.Sort(lists[1])
			if !slices.Equal(lists[0], lists[1]) {
				t.Fatalf("%s %q: %v, want %v", what, asked, lists[1], lists[0])
			}
		}
	}
	for v, ns := range values {
		under.remove(ns, v)
		at.remove(ns, v)
	}
	if len(under.all)+len(at.all) > 0 {
		t.Errorf("%d and %d entries are left", len(under.all), len(at.all))
	}
	// Fields are length-delimited, not joined.
	under.add(moqt.Namespace{"ab", "c"}, 1)
	if found := slices.Collect(under.under(moqt.Namespace{"a", "bc"})); found != nil {
		t.Errorf("found %v", found)
	}
}

// TestWakeupsByNamespace checks that requests that wait for a publisher, and discoveries, wake up only
// for namespaces that they cover.
func TestWakeupsByNamespace(t *testing.T) {
	r := start(t, short())
	waiting := r.hold(points)
	defer waiting.release()
	d := &discovery{prefix: session, changed: map[string]moqt.Namespace{}, wake: make(chan struct{}, 1)}
	r.mu.Lock()
	appeared := waiting.appeared
	r.discoveries.add(d.prefix, d)
	r.mu.Unlock()
	defer r.discoveries.remove(d.prefix, d)
	woken := func() bool {
		select {
		case <-appeared:
			return true
		default:
			return len(d.wake) > 0
		}
	}
	var withdraw []func()
	for i := range 1000 {
		withdraw = append(withdraw, r.Offer(moqt.Namespace{"elsewhere", fmt.Sprint(i)}, dials(r)))
	}
	for _, w := range withdraw {
		w()
	}
	if woken() {
		t.Error("woken by namespaces elsewhere")
	}
	r.Offer(session, dials(r))()
	if !woken() || len(d.wake) == 0 {
		t.Error("not woken by its own namespace")
	}
}
