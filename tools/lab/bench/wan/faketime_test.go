package wan

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/quiccc"
	"holocast/internal/sampledata"
	"holocast/internal/sessiontest/fakepath"
)

var page = flag.String("page", "", "page to write on sessions of the performer, in fake time")

// inFakeTime runs publisher, QUIC and viewer unmodified over a simulated path, without delays by the
// machine.
func inFakeTime(t *testing.T, p path, s stream, duration time.Duration) (run PathRun) {
	t.Helper()
	run = PathRun{Path: p.name, Contender: s.contender, Mbps: s.mbps(), DepthQP: s.qp}
	run.figures(deliver(t, p, s, duration, nil), warmup, duration, time.Duration(p.changed*float64(time.Second)))
	return run
}

// deliver returns the frames that each camera's viewer shows. began, unless nil, receives the publisher's
// session.
func deliver(t *testing.T, p path, s stream, duration time.Duration, began func(*moqt.Session)) (shown [][]sample) {
	t.Helper()
	fakepath.Test(t, func(t *testing.T) {
		toViewer := fakepath.Direction{
			Rate: p.at, Delay: homeDelay * time.Millisecond, Queue: homeQueue * time.Millisecond, Loss: p.loss / 100,
		}
		back := toViewer
		net := fakepath.New(toViewer, back)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		pub := newPublisher(s)
		session, publishing := net.Connect(t, moqt.Handler{}, pub.set.Handler())
		defer session.Close(wire.NoError, "") // ends the readers
		views := make([]*view, len(pub.tracks))
		for i, track := range pub.tracks {
			sub, err := session.Subscribe(ctx, track.Name(), moqt.SubscribeOptions{})
			if err != nil {
				t.Fatal(err)
			}
			views[i] = &view{stream: s, publisher: pub, camera: i, newest: -1}
			running.Go(func() { views[i].receive(ctx, sub) })
		}
		net.Begin()
		if began != nil {
			began(publishing)
		}
		running.Go(func() { pub.run(ctx) })
		time.Sleep(duration + deliveryTimeout + time.Second)
		for _, v := range views {
			shown = append(shown, v.all())
		}
	})
	return shown
}

// at returns the path's rate in bytes per second.
func (p path) at(second int) float64 {
	rate := p.rates[0].mbps
	for _, s := range p.rates {
		if s.at <= second {
			rate = s.mbps
		}
	}
	return rate * 1e6 / 8
}

// of returns a stream of equal frames with key frames eight times as large.
func of(mbps float64, stagger int) stream {
	s := stream{contender: layoutW, group: group, stagger: stagger}
	size := int(mbps * 1e6 / 8 / fps / cameras * group / (group + 7))
	for range cameras {
		objects := [][]byte{make([]byte, 8*size)}
		for range group - 1 {
			objects = append(objects, make([]byte, size))
		}
		s.objects = append(s.objects, objects)
	}
	return s
}

// TestSessionsInFakeTime checks that a stream below the path's rate does not freeze, and that one
// above it does.
func TestSessionsInFakeTime(t *testing.T) {
	if !quiccc.Patched() {
		t.Skip("needs quic-go as patched by tools/quicpatch (make build)")
	}
	steady := path{name: homePath, rates: []step{{0, homeRate}}}
	const seconds = 5
	for _, c := range []struct {
		name   string
		path   path
		stream stream
		frozen bool
	}{
		{"below", steady, of(10, 0), false},
		{"staggered", steady, of(12, group/cameras), false},
		{"above", steady, of(60, 0), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := inFakeTime(t, c.path, c.stream, seconds*time.Second)
			t.Logf("%.1f frames/s, delay %.0f / %.0f ms, %d freezes", r.FPS, r.DelayP50, r.DelayP95, r.Freezes200)
			if r.DelayP50 < homeDelay {
				t.Errorf("a delay of %.1f ms over a path of %d ms", r.DelayP50, homeDelay)
			}
			if (r.Freezes200 > 0) != c.frozen || (r.FPS < fps-1) != c.frozen {
				t.Errorf("%d freezes at %.1f frames/s", r.Freezes200, r.FPS)
			}
		})
	}
}

// TestPerformerInFakeTime writes the page named by -page.
func TestPerformerInFakeTime(t *testing.T) {
	if *page == "" {
		t.Skip("-page is not set")
	}
	if !quiccc.Patched() {
		t.Skip("needs quic-go as patched by tools/quicpatch (make build)")
	}
	data, err := sampledata.Find()
	if err != nil {
		t.Log(err)
	}
	const seconds = 12
	list, err := paths(data, false, seconds)
	if err != nil {
		t.Fatal(err)
	}
	from, err := performer(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, s := range from {
			s.close()
		}
	}()
	contenders, err := streams(t.Context(), from, group, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	var r Result
	for _, p := range list {
		for _, s := range contenders {
			if s.contender == layoutA && p.name != homePath {
				continue
			}
			run := inFakeTime(t, p, s, seconds*time.Second)
			t.Logf("%s over %s: %.1f frames/s, %.0f / %.0f ms, %d freezes, recovery %.1f s", s.contender, p.name, run.FPS,
				run.DelayP50, run.DelayP95, run.Freezes200, run.RecoveryS)
			r.Paths = append(r.Paths, run)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `# wan in fake time

The sessions of [wan](wan.md) without delays by the machine: publisher, viewer and QUIC run unmodified in the time of
Go's `+"`testing/synctest`"+` over a simulated path. The publisher's origin, which is also the relay's, serves the
viewer directly. In the first table, a second of the four cameras' frames, encoded beforehand, repeats, in layout W with
quantizers %d and %d; neither its rate nor its key frames adapt to the path.

Measured by `+"`go test ./tools/lab/bench/wan -run TestPerformerInFakeTime -page FILE`"+` on %s.

Frames/s is the mean of the cameras. Freezes are counted over all cameras, in %d s of one session; the column "longest"
has the longest time without a new frame of a camera. The paths are the same as in
`+"`holocast-lab bench wan --parts paths`"+`: %d ms one way, a queue of %d ms; the 5G paths follow recorded throughput
(5Gophers), scaled to a mean of %d Mbit/s. Recovery is the time from the fall of the rate to the first second in which
every camera shows 9 of 10 frames within 200 ms.

`, contenders[0].qp, contenders[0].qp+2, time.Now().UTC().Format(time.DateOnly),
		seconds-1, homeDelay, homeQueue, homeRate)
	b.WriteString(r.pathTable())
	b.WriteString("\nLayout W fits 20 Mbit/s, but the key frames of four cameras together fill the queue: staggered key " +
		"frames avoid its\nlosses. After the rate has halved, nothing fits: the publisher has to send less.\n")
	b.WriteString(adaptingPage(t, from))
	if err := os.WriteFile(*page, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
