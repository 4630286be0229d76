//go:build linux

package study

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"holocast/internal/netlab"
	"holocast/internal/netlab/topology"
	"holocast/internal/netlab/wire"
	"holocast/internal/pause"
	"holocast/internal/quiccc"
	"holocast/tools/lab/bench/internal/cputime"
	"holocast/tools/lab/bench/internal/quantile"
	"holocast/tools/lab/tcpcc"
)

// attempts limits how many times a cell runs if the emulator is late.
const attempts = 3

// sampleEvery is the time between samples.
const sampleEvery = 50 * time.Millisecond

// Run measures the cells. It needs permission to create network namespaces.
func Run(ctx context.Context, o Options) (r Result, err error) {
	if err := errors.Join(o.Check(), netlab.Supported()); err != nil {
		return r, err
	}
	if !quiccc.Patched() {
		return r, errors.New("this program lacks our quic-go patches, so it has only one congestion control; build it " +
			"with make")
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	tcp, remove, err := tcpNames(o.Log)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	names, missing := transports(slices.Collect(maps.Keys(tcp)))
	r = Result{Quick: o.Quick, Wifi: filepath.Base(cmp.Or(o.Wifi, wifiModel)), Began: time.Now(), Missing: missing}
	for name, kernel := range tcp {
		if name != kernel {
			r.Added = append(r.Added, tcpPrefix+name)
		}
	}
	slices.Sort(r.Added)
	r.Processors, r.LoadAverage = runtime.NumCPU(), cputime.LoadAverage()
	topologies, err := paths(cmp.Or(o.Wifi, wifiModel))
	if err != nil {
		return r, err
	}
	state, done, err := openState(o)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, state.close()) }()
	ids := plan(o, names)
	m := &measurement{o: o, topologies: topologies, tcp: tcp, state: state, total: len(ids), r: &r}
	r.Cells = make([]Cell, len(ids))
	for i, id := range ids {
		if c, ok := done[id]; ok {
			r.Cells[i] = c
			r.Resumed++
		}
	}
	for i := 0; i < len(ids); {
		first := i
		i += together(ids[i:])
		group, ctx := errgroup.WithContext(ctx)
		for j := first; j < i; j++ {
			if _, ok := done[ids[j]]; ok {
				continue
			}
			group.Go(func() (err error) {
				r.Cells[j], err = m.cell(ctx, ids[j])
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return r, err
		}
	}
	r.Seconds = time.Since(r.Began).Seconds()
	return r, nil
}

// together returns how many of the next cells are measured at the same time.
func together(ids []ID) (n int) {
	for n < min(framesAtOnce, len(ids)) && ids[n].Load == framesLoad {
		n++
	}
	return max(1, n)
}

// measurement is a run of the study.
type measurement struct {
	o          Options
	topologies map[string]*topology.Topology
	tcp        map[string]string // the kernel's names of congestion controllers
	state      *state
	total      int

	mu   sync.Mutex
	done int
	r    *Result
}

// cell measures one cell, again if the emulator was late, and keeps it.
func (m *measurement) cell(ctx context.Context, id ID) (c Cell, err error) {
	again := 0
	for ; ; again++ {
		if c, err = measure(ctx, m.topologies[id.Path], id, m.tcp); err != nil {
			return c, fmt.Errorf("%s over %s: %w", id.Transport, id.Path, err)
		}
		if m.o.Quick || len(c.Failures) == 0 || again == attempts-1 {
			break
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.state.add(c); err != nil {
		return c, err
	}
	m.r.Repeated += again
	m.done++
	fmt.Fprintf(m.o.Log, "%d/%d %s\n", m.r.Resumed+m.done, m.total, c)
	return c, nil
}

func paths(wifi string) (map[string]*topology.Topology, error) {
	all := map[string]*topology.Topology{}
	for _, name := range AllPaths() {
		t, err := topology.OnePath(strings.TrimSuffix(name, "%"), conditions(name))
		if err != nil {
			return nil, err
		}
		all[name] = t
	}
	model, err := topology.LoadWifi(wifi)
	if err == nil {
		all["wifi"], err = all["wifi"].OverWifi("", model)
	}
	return all, err
}

// tcpNames returns the kernel's name for each of tcpControllers that it has. Missing ones are added where possible,
// until remove is called.
func tcpNames(log io.Writer) (names map[string]string, remove func() error, err error) {
	b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	if err != nil {
		return nil, nil, fmt.Errorf("the kernel's congestion controllers: %w", err)
	}
	names, remove = map[string]string{}, func() error { return nil }
	for _, name := range strings.Fields(string(b)) {
		if slices.Contains(tcpControllers, name) {
			names[name] = name
		}
	}
	if len(names) == len(tcpControllers) {
		return names, remove, nil
	}
	added, err := tcpcc.Add()
	if err != nil {
		fmt.Fprintf(log, "only the congestion controllers %s: %v\n", strings.TrimSpace(string(b)), err)
		return names, remove, nil
	}
	for _, c := range tcpControllers {
		if name, ok := added.Name(c); ok && names[c] == "" {
			names[c] = name
		}
	}
	return names, added.Close, nil
}

// measure runs one cell. tcp holds the kernel's names of congestion controllers.
func measure(ctx context.Context, top *topology.Topology, id ID, tcp map[string]string) (c Cell, err error) {
	lab, err := netlab.Start(top, netlab.Options{Wire: wire.Options{Interval: sampleEvery}})
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	want := int64(0)
	if id.Load == objectLoad {
		want = int64(id.Mbit) * 1e6 / 8
	}
	if err := lab.Begin(); err != nil {
		return c, err
	}
	origin := time.Now()
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	t, err := open(limited, lab, id, want, tcp)
	defer t.close()
	if err != nil {
		return c, err
	}
	c = Cell{ID: id, Series: &Series{}}
	sampling, stop := context.WithCancel(ctx)
	sampled := make(chan struct{})
	go func() {
		defer close(sampled)
		t.watch(sampling, c.Series)
	}()
	defer func() { stop(); <-sampled }()
	if id.Load == objectLoad {
		err = t.object(ctx, &c)
	} else {
		err = t.camera(ctx, &c)
	}
	if err != nil {
		return c, err
	}
	stop()
	<-sampled
	t.close()
	t.closing = nil
	report, err := lab.Finish()
	if err != nil {
		return c, err
	}
	c.path(report, t.began.Sub(origin).Seconds())
	return c, ctx.Err()
}

// watch samples the sender.
func (t *transfer) watch(ctx context.Context, s *Series) {
	for {
		window, rtt := t.sample()
		s.T = append(s.T, round(time.Since(t.began).Seconds(), 3))
		s.Window = append(s.Window, round(float64(window)/1024, 1))
		s.RTT = append(s.RTT, round(float64(rtt)/1e6, 2))
		if pause.For(ctx, sampleEvery) != nil {
			return
		}
	}
}

func round(v float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(v*scale) / scale
}

// object sends one object and waits for it.
func (t *transfer) object(ctx context.Context, c *Cell) error {
	ctx, cancel := context.WithTimeout(ctx, t.id.limit())
	defer cancel()
	sent := make(chan error, 1)
	t.working.Go(func() {
		for left := t.sink.want; left > 0; {
			n := min(left, segmentBytes)
			if left-n < segmentHeader {
				n = left
			}
			if err := t.send(ctx, newSegment(int(n))); err != nil {
				sent <- err
				return
			}
			left -= n
		}
		sent <- nil
	})
	for {
		select {
		case <-t.sink.all:
		case err := <-sent:
			if err != nil && ctx.Err() == nil {
				return err
			}
			if !reliable(t.id.Transport) {
				t.settle(ctx)
				break
			}
			sent = nil // wait for the rest
			continue
		case <-ctx.Done():
		}
		break
	}
	received := t.sink.bytes.Load()
	c.Complete = received >= t.sink.want
	last := time.Unix(0, t.sink.last.Load())
	if received > 0 {
		if took := last.Sub(t.began).Seconds(); took > 0 {
			c.Mbps = float64(received) * 8e-6 / took
			if c.Complete || !reliable(t.id.Transport) {
				c.RetrievalS = took
			}
		}
	}
	c.Delivery = float64(received) / float64(t.sink.want)
	return nil
}

// settle waits until no more packets arrive.
func (t *transfer) settle(ctx context.Context) {
	const quiet = 300 * time.Millisecond // above the longest queue
	for {
		before := t.sink.last.Load()
		if pause.For(ctx, quiet) != nil || t.sink.last.Load() == before {
			return
		}
	}
}

// camera sends frames and judges those captured after the first second.
func (t *transfer) camera(ctx context.Context, c *Cell) error {
	warmup := time.Second
	began := time.Now()
	end := began.Add(warmup + time.Duration(t.id.Seconds)*time.Second)
	tick := time.NewTicker(time.Second / framesPerS)
	defer tick.Stop()
	sent, received := 0, int64(0)
	for now := began; now.Before(end); {
		segment := newSegment(frameBytes)
		if capturedAt(segment).Sub(began) >= warmup {
			if sent == 0 {
				received = t.sink.bytes.Load()
				t.lab.Mark()
			}
			sent++
		}
		if err := t.send(ctx, segment); err != nil {
			return err
		}
		select {
		case now = <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	received = t.sink.bytes.Load() - received
	if err := pause.For(ctx, frameDeadline); err != nil { // for frames in flight
		return err
	}
	t.sink.mu.Lock()
	defer t.sink.mu.Unlock()
	var delays []time.Duration
	onTime := 0
	for _, f := range t.sink.frames {
		if f.captured.Sub(began) < warmup {
			continue
		}
		delay := f.arrived.Sub(f.captured)
		delays = append(delays, delay)
		if delay <= frameDeadline {
			onTime++
		}
	}
	c.Complete = true
	c.Mbps = float64(received) * 8e-6 / float64(t.id.Seconds)
	c.Delivery = float64(onTime) / float64(max(sent, 1))
	c.FrameP50Ms, c.FrameP99Ms = ms(quantile.Of(delays, 0.5)), ms(quantile.Of(delays, 0.99))
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

// path takes the figures of the emulated paths towards the client. began is the time of dialing since
// the start of the report's series, in seconds.
func (c *Cell) path(r *netlab.Report, began float64) {
	for i, p := range r.Paths {
		c.LateUs = max(c.LateUs, p.Late.P99)
		if p.From == "b" || p.From == "eb" && p.To == "ea" {
			continue
		}
		packets, delay, jitter := 0.0, 0.0, 0.0
		for _, s := range r.Series {
			n := s.Paths[i]
			packets += float64(n.PacketsOut)
			delay += n.DelayMean * float64(n.PacketsOut)
			jitter += n.Jitter * float64(n.PacketsOut)
			if i == 0 {
				c.Series.QueueT = append(c.Series.QueueT, round(s.Seconds-began, 3))
				c.Series.Queue = append(c.Series.Queue, round(float64(n.QueueMax)/1514, 1))
			}
		}
		if packets > 0 {
			c.DelayMs += delay / packets
			c.JitterMs += jitter / packets
		}
	}
	c.Failures = r.Failures
	if !c.keepsSeries() {
		c.Series = nil
	}
}

// state keeps finished cells.
type state struct{ file *os.File }

// openState returns the cells of an earlier run to resume.
func openState(o Options) (*state, map[ID]Cell, error) {
	done := map[ID]Cell{}
	if o.State == "" {
		return &state{}, done, nil
	}
	if err := os.MkdirAll(filepath.Dir(o.State), 0o755); err != nil {
		return nil, nil, fmt.Errorf("keep cells: %w", err)
	}
	flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if o.Resume {
		f, err := os.Open(o.State)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, fmt.Errorf("resume: %w", err)
		}
		if err == nil {
			lines := bufio.NewScanner(f)
			lines.Buffer(nil, 1<<24)
			for lines.Scan() {
				var c Cell
				if json.Unmarshal(lines.Bytes(), &c) == nil { // the last line of a killed run may be cut
					done[c.ID] = c
				}
			}
			_ = f.Close()
		}
	} else {
		flags |= os.O_TRUNC
	}
	f, err := os.OpenFile(o.State, flags, 0o644)
	if err != nil {
		return nil, nil, fmt.Errorf("keep cells: %w", err)
	}
	if o.Resume {
		if _, err := f.WriteString("\n"); err != nil { // end a cut line
			return nil, nil, errors.Join(fmt.Errorf("keep cells: %w", err), f.Close())
		}
	}
	return &state{f}, done, nil
}

func (s *state) add(c Cell) error {
	if s.file == nil {
		return nil
	}
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if _, err := s.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("keep a cell: %w", err)
	}
	return nil
}

func (s *state) close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}
