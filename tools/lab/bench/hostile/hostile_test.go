package hostile

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"holocast/internal/connect"
	"holocast/internal/devcert"
	"holocast/tools/lab/bench/internal/load"
)

// envAttack, if set in the environment, makes the test binary run the attacker.
const envAttack = "HOLOCAST_TEST_ATTACK"

func TestMain(m *testing.M) {
	if os.Getenv(envAttack) == "" {
		os.Exit(m.Run())
	}
	args := os.Args[len(os.Args)-4:]
	hash, err := devcert.ParseHash(args[3])
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if err := Attack(ctx, args[0], &Target{Addr: args[1], HTTP: args[2], TLS: devcert.Pinned(hash)},
		os.Stdout); err != nil {
		panic(err)
	}
}

// During each attack the relay stays within its memory limit, and its viewer and a new viewer
// receive frames. Forged first packets may exclude new viewers, because the relay cannot
// distinguish them.
func TestAttacks(t *testing.T) {
	t.Setenv(envAttack, "1")
	var all sync.WaitGroup
	for names := range slices.Chunk(Names(), (len(Names())+2)/3) { // three relays at a time
		all.Go(func() {
			r, err := Run(t.Context(), Options{
				Time: time.Second, newViewer: noFrameLimit, Parts: names,
				Log: t.Output(), Attacker: []string{os.Args[0]},
			})
			if err != nil {
				t.Error(err)
				return
			}
			if len(r.Attacks) != len(names) {
				t.Errorf("%d attacks of %d", len(r.Attacks), len(names))
			}
			for _, u := range r.Attacks {
				late := u.NewViewerMs >= float64(noFrameLimit.Milliseconds()) && u.Name != forged
				if u.FPS == 0 || late || u.PeakMB == 0 || u.PeakMB > r.LimitMB {
					t.Errorf("%s: %s", u.Name, u.Figures)
				}
			}
		})
	}
	all.Wait()
}

// TestAttackerEnds checks the error for an attacker that exits with 0 before it attacks.
func TestAttackerEnds(t *testing.T) {
	relay, err := load.At(connect.Target{URL: "moqt://127.0.0.1:4443/test"})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Attacker: []string{"sh", "-c", "echo wrong arguments >&2"}}
	const want = "the attacker did not start: exit status 0: wrong arguments\n"
	if _, err := o.attack(t.Context(), relay, forged); err == nil || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
}

// Only local relays can be attacked.
func TestOnlyLocalRelays(t *testing.T) {
	for _, addr := range []string{"192.0.2.1:4443", "relay.example:4443", ":4443", "[::]:4443", "0.0.0.0:4443"} {
		if err := Attack(t.Context(), attacks()[0].name, &Target{Addr: addr}, t.Output()); err == nil {
			t.Errorf("%s was attacked", addr)
		}
	}
	if err := Attack(t.Context(), "none", &Target{Addr: "127.0.0.1:1"}, t.Output()); err == nil {
		t.Error("ran an unknown attack")
	}
	if _, err := Run(t.Context(), Options{Parts: []string{"none"}, Attacker: []string{"x"}}); err == nil {
		t.Error("measured an unknown attack")
	}
}
