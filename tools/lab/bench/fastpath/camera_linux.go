//go:build linux && (amd64 || arm64)

package fastpath

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"holocast/internal/devcert"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/netlab"
	"holocast/internal/netlab/topology"
	"holocast/internal/origin"
	"holocast/internal/parts"
	"holocast/internal/pause"
	"holocast/tools/lab/bench/internal/cputime"
	"holocast/tools/lab/bench/internal/direct"
	"holocast/tools/lab/bench/internal/load"
	"holocast/tools/lab/bench/internal/quantile"
	"holocast/tools/lab/bench/internal/realframes"
)

// Addresses in the camera part's network. Those named to… are the relay's, by link; farIP is the
// far viewer's.
const (
	toPublisher = "10.77.1.2"
	toNear      = "10.77.2.2"
	toFar       = "10.77.3.2"
	farIP       = "10.77.3.1"
	tcpPort     = 5001
)

// camera measures a camera's frames through user space and through the kernel, alternately.
func camera(ctx context.Context, o Options, binary string, r *Result) error {
	if err := netlab.Supported(); err != nil {
		return err
	}
	source, frames, err := realframes.Load(o.Data)
	if err != nil {
		return err
	}
	bytes := 0
	for _, f := range frames {
		bytes += len(f)
	}
	r.CameraSource, r.CameraMbps = source, float64(8*bytes*cameraFPS)/float64(len(frames))/1e6
	r.CameraBegan, r.CameraLoad = time.Now(), cputime.LoadAverage()
	length := 10 * time.Second
	if o.Quick {
		length = 4 * time.Second
	}
	if stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME); err == nil { // CPU time of eBPF programs
		defer func() { _ = stats.Close() }()
	}
	ways := []string{User, Auto, Single, ChaCha20}
	for _, condition := range []CameraRun{{}, {TCP: true}, {Busy: true}} {
		turns := make([][]CameraRun, len(ways))
		for turn := range planOf(o).turns {
			for n := range ways {
				i := (turn + n) % len(ways) // no mode always comes first
				run := CameraRun{Way: ways[i], TCP: condition.TCP, Busy: condition.Busy, Fallback: map[string]float64{}}
				if err := run.measure(ctx, binary, frames, length); err != nil {
					return fmt.Errorf("camera, %s: %w", run.Way, err)
				}
				if o.Log != nil {
					fmt.Fprintf(o.Log, "camera, %s, TCP flow %t, busy threads %t: near %.1f frames/s, far %.1f, TCP "+
						"%.0f Mbit/s, %.0f packets by the kernel, up to %.0f B unregistered\n", run.Way, run.TCP,
						run.Busy, run.Near.FPS, run.Far.FPS, run.TCPMbps, run.Forwarded, run.UnregisteredMax)
				}
				turns[i] = append(turns[i], run)
			}
		}
		for _, of := range turns {
			r.Camera = append(r.Camera, medians(of))
		}
	}
	return nil
}

// measure sets up the network, relay, camera and viewers, and measures one run.
func (r *CameraRun) measure(ctx context.Context, binary string, frames [][]byte, length time.Duration) (err error) {
	t, err := topology.Parse([]byte(`{name: camera, hosts: [publisher, near, far], edges: [relay],
links: [{between: [publisher, relay]}, {between: [near, relay]}],
paths: [{name: path1, between: [far, relay], ` + FarPath + `}]}`))
	if err != nil {
		return err
	}
	lab, err := netlab.Start(t, netlab.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	mode := r.Way
	if r.Way == User {
		mode = "off"
	}
	atRelay := lab.Node("relay")
	relay, err := load.StartAt(binary, "", func(c *exec.Cmd) error { return atRelay.Start(c) },
		"--listen", fmt.Sprint(":", relayPort), "--admin", toPublisher+":8080", "--fastpath", mode, "--drain", "0s")
	if err != nil {
		return err
	}
	defer relay.Stop()
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	dial := func(from, addr string, h moqt.Handler) (s *moqt.Session, err error) {
		err = lab.Node(from).Namespace.Do(func() error {
			s, err = moqt.Dial(ctx, fmt.Sprintf("moqt://%s:%d", addr, relayPort), devcert.Pinned(relay.Hash()), h,
				direct.Quiet)
			return err
		})
		return s, err
	}
	ms := uint64(CameraTimeout.Milliseconds())
	track := origin.NewTrack(trackName, wire.AppendKeyValues(nil,
		wire.KeyValue{Type: wire.PropertyObjectDeliveryTimeout, Int: ms},
		wire.KeyValue{Type: wire.PropertySubgroupDeliveryTimeout, Int: ms}), origin.Limits{MaxAge: time.Second})
	var set origin.Set
	set.Add(track)
	publisher, err := dial("publisher", toPublisher, set.Handler())
	if err != nil {
		return err
	}
	defer publisher.Close(wire.NoError, "")
	if _, err := publisher.PublishNamespace(ctx, trackName.Namespace); err != nil {
		return err
	}
	most := 0
	for _, f := range frames {
		most = max(most, len(f))
	}
	sent := &sentFrames{at: map[uint64]time.Time{}}
	var viewers []*cameraViewer
	for i := range nearViewers + 1 {
		from, addr := "near", toNear
		if i == nearViewers {
			from, addr = "far", toFar
		}
		s, err := dial(from, addr, moqt.Handler{})
		if err != nil {
			return err
		}
		defer s.Close(wire.NoError, "")
		sub, err := s.Subscribe(ctx, trackName, moqt.SubscribeOptions{})
		if err != nil {
			return err
		}
		v := &cameraViewer{complete: map[uint64]time.Time{}}
		v.receiver = parts.NewReceiver(ctx, sub, parts.Limits{MaxPayload: most, Timeout: CameraTimeout}, v.take)
		running.Go(func() { _ = v.receiver.Run() }) // until ctx is done
		viewers = append(viewers, v)
	}
	if err := lab.Begin(); err != nil {
		return err
	}
	sending, stop := context.WithCancel(ctx)
	defer stop()
	var shot sync.WaitGroup
	shot.Go(func() { sent.send(sending, track, frames) })
	flow := &tcpFlow{}
	if r.TCP {
		if err := flow.start(ctx, &running, lab); err != nil {
			return err
		}
	}
	if r.Busy {
		halt, err := startLoad(ctx)
		if err != nil {
			return err
		}
		defer halt()
	}
	if err := pause.For(ctx, warmup); err != nil {
		return err
	}
	lab.Mark()
	before, err := readFastPath(atRelay)
	if err != nil {
		return err
	}
	process, programs, err := relayTime(relay, atRelay)
	if err != nil {
		return err
	}
	from, carried := time.Now(), flow.received.Load()
	var repaired []uint64
	for _, v := range viewers {
		repaired = append(repaired, v.receiver.Stats().Repaired)
	}
	for time.Since(from) < length {
		if err := pause.For(ctx, 200*time.Millisecond); err != nil {
			return err
		}
		now, err := readFastPath(atRelay)
		if err != nil {
			return err
		}
		r.Samples++
		r.UnregisteredMax = max(r.UnregisteredMax, now.unregistered)
	}
	to := time.Now()
	r.Seconds = to.Sub(from).Seconds()
	r.TCPMbps = float64(8*(flow.received.Load()-carried)) / r.Seconds / 1e6
	processEnd, programsEnd, err := relayTime(relay, atRelay)
	if err != nil {
		return err
	}
	shown := r.Seconds * cameraFPS
	r.ProcessMs = (processEnd - process).Seconds() * 1000 / shown
	r.ProgramsMs = (programsEnd - programs).Seconds() * 1000 / shown
	after, err := readFastPath(atRelay)
	if err != nil {
		return err
	}
	if n := after.forwarded - before.forwarded; n > 0 {
		r.Precomputed = (after.precomputed - before.precomputed) / n
	}
	r.Forwarded, r.Lost = after.forwarded-before.forwarded, after.lost-before.lost
	for reason, n := range after.fallback {
		if n > before.fallback[reason] {
			r.Fallback[reason] = n - before.fallback[reason]
		}
	}
	stop()
	shot.Wait()
	if err := pause.For(ctx, CameraTimeout+100*time.Millisecond); err != nil { // for frames in flight
		return err
	}
	r.Near.FPS = math.Inf(1)
	for i, v := range viewers {
		s := v.shown(sent, from, to)
		s.Repaired = v.receiver.Stats().Repaired - repaired[i]
		if i == nearViewers {
			r.Far = s
		} else if s.FPS < r.Near.FPS {
			r.Near = s
		}
	}
	report, err := lab.Finish()
	if err != nil {
		return err
	}
	r.Failures = report.Failures
	for range 100 { // the relay may have to wait for a processor
		last, err := readFastPath(atRelay)
		if err != nil {
			return err
		}
		if r.UnregisteredEnd = last.unregistered; r.UnregisteredEnd == 0 {
			return nil
		}
		if err := pause.For(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// sentFrames records when frames were sent, by group.
type sentFrames struct {
	mu sync.Mutex
	at map[uint64]time.Time
}

// send sends frames until ctx is done.
func (s *sentFrames) send(ctx context.Context, t *origin.Track, frames [][]byte) {
	next := time.Now()
	for group := uint64(1); ; group++ {
		s.mu.Lock()
		s.at[group] = time.Now()
		s.mu.Unlock()
		for d := range parts.Cut(moqt.Datagram{Group: group, Priority: wire.DefaultPriority, EndOfGroup: true},
			frames[group%uint64(len(frames))]) {
			t.SendDatagram(d)
		}
		next = next.Add(time.Second / cameraFPS)
		if pause.For(ctx, time.Until(next)) != nil {
			return
		}
	}
}

// cameraViewer records when frames were complete.
type cameraViewer struct {
	receiver *parts.Receiver
	mu       sync.Mutex
	complete map[uint64]time.Time
}

func (v *cameraViewer) take(p parts.Payload) {
	now := time.Now()
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, again := v.complete[p.Group]; !again {
		v.complete[p.Group] = now
	}
}

// shown computes the viewer's figures for frames sent between from and to.
func (v *cameraViewer) shown(sent *sentFrames, from, to time.Time) (s Shown) {
	v.mu.Lock()
	defer v.mu.Unlock()
	sent.mu.Lock()
	defer sent.mu.Unlock()
	var delays []float64
	for group, at := range sent.at {
		complete, ok := v.complete[group]
		if d := complete.Sub(at); ok && !at.Before(from) && at.Before(to) && d <= CameraTimeout {
			delays = append(delays, float64(d)/1e6)
		}
	}
	s.FPS = float64(len(delays)) / to.Sub(from).Seconds()
	s.DelayP50, s.DelayP99 = quantile.Of(delays, 0.5), quantile.Of(delays, 0.99)
	return s
}

// tcpFlow is a bulk transfer from the relay's host to the far viewer's host.
type tcpFlow struct{ received atomic.Int64 }

func (f *tcpFlow) start(ctx context.Context, running *sync.WaitGroup, lab *netlab.Lab) error {
	at := netip.AddrPortFrom(netip.MustParseAddr(farIP), tcpPort)
	var ln net.Listener
	if err := lab.Node("far").Namespace.Do(func() (err error) {
		ln, err = net.Listen("tcp", at.String())
		return err
	}); err != nil {
		return err
	}
	running.Go(func() {
		c, err := ln.Accept()
		_ = ln.Close()
		if err != nil {
			return
		}
		defer context.AfterFunc(ctx, func() { _ = c.Close() })()
		for b := make([]byte, 1<<16); ; {
			n, err := c.Read(b)
			f.received.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	var out net.Conn
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		e := c.Control(func(fd uintptr) {
			err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION,
				"cubic")
		})
		return errors.Join(e, err)
	}}
	if err := lab.Node("relay").Namespace.Do(func() (err error) {
		out, err = d.DialContext(ctx, "tcp", at.String())
		return err
	}); err != nil {
		return errors.Join(err, ln.Close())
	}
	running.Go(func() {
		defer context.AfterFunc(ctx, func() { _ = out.Close() })()
		for b := make([]byte, 1<<16); ; {
			if _, err := out.Write(b); err != nil {
				return
			}
		}
	})
	return nil
}

// fastPathCounts holds the relay's fast-path metrics.
type fastPathCounts struct {
	forwarded, precomputed, lost, unregistered float64
	fallback                                   map[string]float64
}

func readFastPath(relay *netlab.Node) (c fastPathCounts, err error) {
	c.fallback = map[string]float64{}
	err = metrics(relay.Namespace, toPublisher+":8080", func(series string, v float64) {
		name, ok := strings.CutPrefix(series, "holocast_relay_fastpath_")
		switch reason, left := strings.CutPrefix(name, `fallback_packets_total{reason="`); {
		case !ok:
		case left:
			c.fallback[strings.TrimSuffix(reason, `"}`)] = v
		case name == "forwarded_packets_total":
			c.forwarded = v
		case name == "precomputed_packets_total":
			c.precomputed = v
		case name == "lost_packets_total":
			c.lost = v
		case name == "unregistered_bytes":
			c.unregistered = v
		}
	})
	return c, err
}

// relayTime returns the CPU time so far of the relay's process and of its eBPF programs.
func relayTime(relay *load.Relay, at *netlab.Node) (process, programs time.Duration, err error) {
	if process, err = relay.CPU(); err != nil {
		return 0, 0, err
	}
	interfaces, err := at.Namespace.Handle.LinkList()
	if err != nil {
		return 0, 0, fmt.Errorf("list relay interfaces: %w", err)
	}
	var indexes []int
	for _, l := range interfaces {
		indexes = append(indexes, l.Attrs().Index)
	}
	programs, err = programTime(at.Namespace, indexes)
	return process, programs, err
}
