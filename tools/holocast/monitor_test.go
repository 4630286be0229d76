package main

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"holocast/internal/moqt"
	"holocast/internal/qoe"
	"holocast/internal/service"
)

func TestViewers(t *testing.T) {
	v := newViewers(moqt.Namespace{"holocast", "test"})
	now := time.Now()
	for i := range 10 {
		if i != 4 { // one frame lost
			v.shown(
				"a", qoe.Receipt{Sequence: uint32(i), Delay: 40 * time.Millisecond},
				now.Add(time.Duration(i-10)*30*time.Millisecond),
			)
		}
	}
	v.shown("left", qoe.Receipt{Delay: time.Second}, now.Add(-2*watching))
	v.shown("forgotten", qoe.Receipt{}, now.Add(-2*forgetViewer))
	v.setConnected(true)
	const want = `
# HELP holocast_viewer_frame_delay_quantile_seconds Quantiles of a viewer's frame delay over the last 5 s.
# TYPE holocast_viewer_frame_delay_quantile_seconds gauge
holocast_viewer_frame_delay_quantile_seconds{quantile="0.5",viewer="a"} 0.04
holocast_viewer_frame_delay_quantile_seconds{quantile="0.95",viewer="a"} 0.04
holocast_viewer_frame_delay_quantile_seconds{quantile="0.99",viewer="a"} 0.04
# HELP holocast_viewer_frames_total Distinct frames displayed by a viewer.
# TYPE holocast_viewer_frames_total counter
holocast_viewer_frames_total{viewer="a"} 9
holocast_viewer_frames_total{viewer="left"} 1
# HELP holocast_viewer_lost_frames Frames missing in a viewer's sequence, minus frames displayed late.
# TYPE holocast_viewer_lost_frames gauge
holocast_viewer_lost_frames{viewer="a"} 1
holocast_viewer_lost_frames{viewer="left"} 0
# HELP holocast_viewer_monitor_connected 1 while the monitor is connected to the relay.
# TYPE holocast_viewer_monitor_connected gauge
holocast_viewer_monitor_connected 1
# HELP holocast_viewer_sessions Viewers that sent a receipt in the last 5 s.
# TYPE holocast_viewer_sessions gauge
holocast_viewer_sessions 1
`
	err := testutil.GatherAndCompare(
		service.NewRegistry(v.metrics()), strings.NewReader(want), "holocast_viewer_frame_delay_quantile_seconds",
		"holocast_viewer_frames_total", "holocast_viewer_lost_frames", "holocast_viewer_monitor_connected",
		"holocast_viewer_sessions",
	)
	if err != nil {
		t.Error(err)
	}
}

// TestViewersBounded checks that the monitor limits the number of viewers it remembers.
func TestViewersBounded(t *testing.T) {
	v := newViewers(nil)
	now := time.Now()
	for i := range maxViewers + 10 {
		v.shown(fmt.Sprint(i), qoe.Receipt{}, now)
	}
	if len(v.all) != maxViewers {
		t.Errorf("%d viewers kept, want at most %d", len(v.all), maxViewers)
	}
}

// TestMonitor checks that a monitor started before the session reports the session's viewer.
func TestMonitor(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	startRelay(t, port)
	url := sessionURL(port, "demo")
	shows := startMonitor(t, url)
	publish(t, url, 1, 1)
	start(t, "holocast", "play", url, "--wait")
	until(t, "a displayed frame", shows)
}

// startMonitor starts a monitor. shows reports whether it has measured a displayed frame.
func startMonitor(t *testing.T, url string) (shows func() bool) {
	t.Helper()
	m := start(t, "holocast", "monitor", url, "--http", "127.0.0.1:0")
	var address string
	until(t, "a listening monitor", func() bool {
		found := regexp.MustCompile(`http://(\S+)/metrics`).FindStringSubmatch(m.Stdout.String())
		if found == nil {
			return false
		}
		address = found[0]
		return true
	})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	shown := regexp.MustCompile(`(?m)^holocast_viewer_frames_total\{viewer="[0-9a-f]+"\} [1-9]`)
	return func() bool {
		r, err := client.Get(address)
		if err != nil {
			return false
		}
		defer func() { _ = r.Body.Close() }()
		page, err := io.ReadAll(r.Body)
		return err == nil && shown.Match(page)
	}
}
