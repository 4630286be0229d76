package fbdt

import (
	"strings"
	"testing"
)

func TestSession(t *testing.T) {
	const sphere = `{"fps":30,"mbit_per_s":9,"sphere":{"viewport_psnr_mean":37.5,"viewport_psnr_p5":30.2,` +
		`"stall_ratio":0.05,"tile_hits":0.9,"mbit_per_s":4.5}}`
	const cloud = `{"fps":29.5,"frames_lost":3,"frame_delay_ms":{"p50":40,"p95":80},"mbit_per_s":57}`
	r := Result{Sessions: []Session{
		{Scenario: traces, Media: video, Over: together}, {Scenario: traces, Media: hologram, Over: "verizon"},
	}}
	for i, out := range []string{"joined\n" + sphere + "\n", cloud} {
		if err := r.Sessions[i].read(out); err != nil {
			t.Fatal(err)
		}
	}
	want := []Session{
		{
			Scenario: traces, Media: video, Over: together, PSNR: 37.5, PSNRP5: 30.2, Stalled: 0.05, TileShare: 0.9,
			Mbps: 4.5,
		},
		{
			Scenario: traces, Media: hologram, Over: "verizon", FPS: 29.5, Lost: 3, DelayP50Ms: 40, DelayP95Ms: 80,
			Mbps: 57,
		},
	}
	for i, s := range r.Sessions {
		if s.String() != want[i].String() || s.PSNRP5 != want[i].PSNRP5 || s.TileShare != want[i].TileShare {
			t.Errorf("%+v, want %+v", s, want[i])
		}
	}
	md := r.Markdown()
	for _, want := range []string{
		"| traces, together | 37.5 / 30.2 | 5.0 % | 90 % | 4.5 |", "| traces, verizon | 29.5 | 3 | 40 / 80 | 57.0 |",
	} {
		if !strings.Contains(md, want) {
			t.Errorf("the report lacks %q:\n%s", want, md)
		}
	}
	for _, out := range []string{"", "no frame arrived", "[1]"} {
		if err := new(Session).read(out); err == nil {
			t.Errorf("%q is a report", out)
		}
	}
}
