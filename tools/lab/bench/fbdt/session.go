package fbdt

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Session holds the figures of one viewer of a real session, over one radio or all of them.
type Session struct {
	Scenario string `json:"scenario"`
	Media    string `json:"media"`
	Over     string `json:"over"` // a radio, or together
	// Of 360° video.
	PSNR      float64 `json:"viewport_psnr_mean,omitempty"` // dB
	PSNRP5    float64 `json:"viewport_psnr_p5,omitempty"`   // exceeded by 95 % of the time
	Stalled   float64 `json:"stall_ratio"`                  // share of time
	TileShare float64 `json:"tile_hits,omitempty"`          // of the viewport
	// Of a hologram.
	FPS        float64 `json:"fps,omitempty"`
	Lost       uint64  `json:"frames_lost,omitempty"`
	DelayP50Ms float64 `json:"frame_delay_ms_p50,omitempty"`
	DelayP95Ms float64 `json:"frame_delay_ms_p95,omitempty"`

	Mbps     float64  `json:"mbit_per_s"`
	Failures []string `json:"emulator_failures,omitempty"`
}

// The media.
const (
	video    = "360° video"
	hologram = "hologram"
	together = "together"
)

// read reads the figures from the output of holocast play --json, whose last line is the report.
func (s *Session) read(out string) error {
	var report struct {
		FPS          float64 `json:"fps"`
		FrameDelayMS struct {
			P50 float64 `json:"p50"`
			P95 float64 `json:"p95"`
		} `json:"frame_delay_ms"`
		FramesLost uint64  `json:"frames_lost"`
		MbitPerS   float64 `json:"mbit_per_s"`
		Sphere     *struct {
			PSNRMean   float64 `json:"viewport_psnr_mean"`
			PSNRP5     float64 `json:"viewport_psnr_p5"`
			StallRatio float64 `json:"stall_ratio"`
			TileHits   float64 `json:"tile_hits"`
			MbitPerS   float64 `json:"mbit_per_s"`
		} `json:"sphere"`
	}
	out = strings.TrimSpace(out)
	if err := json.Unmarshal([]byte(out[strings.LastIndexByte(out, '\n')+1:]), &report); err != nil {
		return fmt.Errorf("parse report of holocast play: %w", err)
	}
	s.Mbps = report.MbitPerS
	if v := report.Sphere; v != nil {
		s.PSNR, s.PSNRP5, s.Stalled, s.TileShare = v.PSNRMean, v.PSNRP5, v.StallRatio, v.TileHits
		s.Mbps = v.MbitPerS
		return nil
	}
	s.FPS, s.Lost = report.FPS, report.FramesLost
	s.DelayP50Ms, s.DelayP95Ms = report.FrameDelayMS.P50, report.FrameDelayMS.P95
	return nil
}

// String returns a progress line.
func (s Session) String() string {
	line := fmt.Sprintf("%s, %s, %s: %.1f Mbit/s", s.Scenario, s.Media, s.Over, s.Mbps)
	if s.Media == video {
		return line + fmt.Sprintf(", %.1f dB, stalled %.1f %%", s.PSNR, 100*s.Stalled)
	}
	return line + fmt.Sprintf(", %.1f fps, delay %.0f / %.0f ms, %d lost", s.FPS, s.DelayP50Ms, s.DelayP95Ms, s.Lost)
}

// sessions writes the tables of real sessions.
func (r Result) sessions(b *strings.Builder) {
	for _, m := range []struct {
		media string
		head  []string
		row   func(Session) []string
	}{
		{
			video,
			[]string{"viewport PSNR mean / p5, dB", "stalled", "of the viewport in tiles", "Mbit/s"},
			func(s Session) []string {
				return []string{
					fmt.Sprintf("%.1f / %.1f", s.PSNR, s.PSNRP5), fmt.Sprintf("%.1f %%", 100*s.Stalled),
					fmt.Sprintf("%.0f %%", 100*s.TileShare), fmt.Sprintf("%.1f", s.Mbps),
				}
			},
		},
		{
			hologram,
			[]string{"frames/s", "lost", "frame delay p50 / p95, ms", "Mbit/s"},
			func(s Session) []string {
				return []string{
					fmt.Sprintf("%.1f", s.FPS), fmt.Sprint(s.Lost),
					fmt.Sprintf("%.0f / %.0f", s.DelayP50Ms, s.DelayP95Ms), fmt.Sprintf("%.1f", s.Mbps),
				}
			},
		},
	} {
		var rows [][]string
		for _, s := range r.Sessions {
			if s.Media != m.media {
				continue
			}
			mark := ""
			if len(s.Failures) > 0 {
				mark = "*"
			}
			rows = append(rows, append([]string{s.Scenario + ", " + s.Over + mark}, m.row(s)...))
		}
		if rows == nil {
			continue
		}
		fmt.Fprintf(b, "### Real sessions: %s\n\n`holocast play` behind a relay, over recorded 5G: each modem alone, "+
			"and all together with `--path`.\n\n", m.media)
		table(b, append([]string{""}, m.head...), rows)
	}
}
