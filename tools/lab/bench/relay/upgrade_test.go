package relay

import (
	"os"
	"testing"
)

// An upgrade under load loses no frames and ends no sessions.
func TestUpgrade(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip(errNotRoot)
	}
	r, err := Run(t.Context(), Options{Parts: []string{upgradePart}, Quick: true})
	if err != nil {
		t.Fatal(err)
	}
	u := r.Upgrade
	t.Logf("%+v", u)
	if u.Sent == 0 || u.Lost > 0 || u.Sessions > 0 || len(u.UpgradeMs) != upgrades {
		t.Error("an upgrade lost frames or sessions, or none happened")
	}
	if len(r.Markdown()) == 0 {
		t.Error("no table")
	}
}
