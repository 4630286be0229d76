package upgrade

import (
	"os"
	"testing"
)

// TestRun upgrades a relay under load: no frame and no session is lost.
func TestRun(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: the relay may not use eBPF")
	}
	r, err := Run(t.Context(), Options{Quick: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
	if r.Sent == 0 || r.Lost > 0 || r.Sessions > 0 || len(r.UpgradeMs) != Upgrades {
		t.Error("an upgrade lost frames or sessions, or there was none")
	}
	if len(r.Markdown()) == 0 {
		t.Error("no table")
	}
}
