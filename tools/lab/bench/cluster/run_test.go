//go:build linux

package cluster

import (
	"context"
	"os"
	"testing"
	"time"

	"holocast/internal/netlab"
)

// envClient, if set in the environment, makes the test binary run a client.
const envClient = "HOLOCAST_TEST_CLIENT"

func TestMain(m *testing.M) {
	if os.Getenv(envClient) == "" {
		os.Exit(m.Run())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if err := RunClient(ctx, os.Args[len(os.Args)-1], os.Stdin, os.Stdout); err != nil {
		panic(err)
	}
}

// TestRun runs the parts without faults and the faults that a cluster survives today, once each.
func TestRun(t *testing.T) {
	if err := netlab.Supported(); err != nil {
		t.Skip(err)
	}
	t.Setenv(envClient, "1")
	o := Options{
		Parts: []string{hopsPart, cpuPart, announcePart, noFault, killedRelay, upgradedPublisherRelay}, Quick: true,
		Log: t.Output(), Client: []string{os.Args[0]},
		repetitions: 1, namespaces: 100,
		length: 3 * time.Second, // the machine may pause for a second while relays receive different frames
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.HopMs) != 2 || r.HopMs[0].P50 < 20 || r.HopMs[1].P50 < 100 || r.Copies < 0.5 || r.Copies > 1.5 {
		t.Errorf("hops %+v, %v copies", r.HopMs, r.Copies)
	}
	if c := r.CPU; c == nil || c.OneRelay <= 0 || c.PublisherRelay <= 0 || c.ViewersRelay <= 0 {
		t.Errorf("processor time %+v", c)
	}
	if a := r.Announce; a == nil || r.AnnounceMs <= 0 || r.MemoryMB <= 0 || a.Namespaces != o.namespaces {
		t.Errorf("announce %+v", a)
	}
	for _, name := range []string{noFault, killedRelay, upgradedPublisherRelay} {
		if f := r.Failover[name]; f == nil || f.NotRecovered > 0 || f.others == nil || f.others.GapP50 <= 0 {
			t.Errorf("%s: %+v", name, f)
		}
	}
	if f := r.Failover[killedRelay]; f != nil && f.at.LostP50 == 0 {
		t.Error("no frame lost at a killed relay")
	}
}
