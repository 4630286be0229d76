//go:build linux

package wire

// #include "forward.h"
import "C"

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// MaxLinks limits the links (directions of paths) per Forwarder.
const MaxLinks = C.FORWARD_LINKS

// A Socket is a packet socket bound to one device. It is the input of one link and the output of
// another.
type Socket struct{ fd int }

// Open binds a packet socket to a device in the calling thread's network namespace. The socket
// receives the device's incoming unicast frames and neighbour discovery: ARP, neighbour
// solicitations and advertisements.
func Open(device int) (*Socket, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	const (
		etherType  = 12
		nextHeader = 14 + 6  // offset in the IPv6 header
		icmpType   = 14 + 40 // offset of the ICMPv6 type
		neighbour  = 135     // neighbour solicitation; an advertisement is 136
	)
	// The first bit of a frame marks multicast.
	taken := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: 1, Jf: 8},
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: etherType},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.ETH_P_ARP, Jt: 6},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.ETH_P_IPV6, Jf: 6},
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: nextHeader},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.IPPROTO_ICMPV6, Jf: 4},
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: icmpType},
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: neighbour, Jf: 2},
		{Code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, K: neighbour + 1, Jt: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: math.MaxInt32},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	program := unix.SockFprog{Len: uint16(len(taken)), Filter: &taken[0]}
	err = errors.Join(
		unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 8<<20),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: device}),
	)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("packet socket on device %d: %w", device, err)
	}
	return &Socket{fd}, nil
}

// Close closes the socket.
func (s *Socket) Close() error { return unix.Close(s.fd) }

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// A Port is one direction of a path between two sockets.
type Port struct {
	Name     string
	From, To *Socket
	Timeline []Change // from the start of the forwarder; see NewLink
	Seed     uint64
	Wifi     *Wifi // replaces the rate; ports with the same Wifi share a medium
}

// Options configure a Forwarder. Defaults are in brackets.
type Options struct {
	Interval  time.Duration // between samples [100 ms]
	Priority  int           // of SCHED_FIFO; negative = ordinary scheduling [50]
	CPU       int           // CPU to run on, not 0 [any]
	MaxMemory int           // bytes of packets in flight [1 GiB]
	Late      time.Duration // departure error above which LinkReport.LatePackets counts [0: every packet]
}

// Counts are a link's counters for one interval.
type Counts struct {
	PacketsIn  uint64 `json:"packets_in"`
	BytesIn    uint64 `json:"bytes_in"`
	PacketsOut uint64 `json:"packets_out"`
	BytesOut   uint64 `json:"bytes_out"`
	Lost       uint64 `json:"lost"`       // by Loss
	LostBurst  uint64 `json:"lost_burst"` // by BurstLoss
	QueueFull  uint64 `json:"queue_full"`
	Failed     uint64 `json:"failed"` // for other reasons: see Faults
	// Time from arrival to departure of the packets that left, in milliseconds.
	DelayMean float64 `json:"delay_mean_ms"`
	DelayMin  float64 `json:"delay_min_ms"`
	DelayMax  float64 `json:"delay_max_ms"`
	Jitter    float64 `json:"jitter_mean_ms"` // difference between the delays of successive packets
	QueueMax  uint64  `json:"queue_max_bytes"`
}

// A Sample holds one interval of all links, in the order of the ports.
type Sample struct {
	End   time.Duration // since the start of the forwarder
	Links []Counts
}

// Faults count packets dropped for reasons other than the conditions.
type Faults struct {
	Ring     uint64 `json:"ring"`     // arrived faster than the thread read them
	Memory   uint64 `json:"memory"`   // no memory left: see Options.MaxMemory
	Oversize uint64 `json:"oversize"` // longer than a frame: segmentation was left to a device
	Send     uint64 `json:"send"`     // rejected by the kernel
}

// Any returns the total.
func (f Faults) Any() uint64 { return f.Ring + f.Memory + f.Oversize + f.Send }

// A LinkReport covers a link over a whole run.
type LinkReport struct {
	Name string    `json:"name"`
	Late Quantiles `json:"departure_error_us"` // |departed − due|
	// LatePackets counts packets with a departure error above Options.Late.
	LatePackets uint64 `json:"late_packets"`
	// Delay, Wait and Queue cover the time since Mark, or since the start.
	Delay   Quantiles `json:"delay_ms"`      // from arrival to departure
	Wait    Quantiles `json:"queue_wait_ms"` // from arrival to the start of transmission
	Queue   Quantiles `json:"queue_bytes"`   // queue length seen by arriving packets
	Arrived uint64    `json:"arrived"`       // packets
	Asked   float64   `json:"losses_asked"`  // expected losses among the packets that arrived
	Lost    uint64    `json:"lost"`
	Burst   uint64    `json:"lost_burst"`
	Full    uint64    `json:"queue_full"`
	Faults  Faults    `json:"faults"`

	Wifi *WifiReport `json:"wifi,omitempty"`
}

// A Report covers a whole run of a Forwarder.
type Report struct {
	Links       []LinkReport  `json:"links"`
	RealTime    bool          `json:"real_time"` // the thread had SCHED_FIFO
	CPU         time.Duration `json:"cpu_ns"`    // CPU time of the thread
	Wakes       uint64        `json:"wakes"`     // number of sleeps
	SamplesLost uint64        `json:"samples_lost"`
}

// A Forwarder runs the thread.
type Forwarder struct {
	f       *C.struct_forwarder
	names   []string
	media   []*Medium
	started time.Duration // CLOCK_MONOTONIC
	late    time.Duration
	done    chan struct{}
}

// Start starts the thread. The caller closes the sockets after Stop.
func Start(ports []Port, options Options) (*Forwarder, error) {
	if len(ports) == 0 || len(ports) > MaxLinks {
		return nil, fmt.Errorf("%d links: a forwarder carries 1 to %d", len(ports), MaxLinks)
	}
	if options.Interval <= 0 {
		options.Interval = 100 * time.Millisecond
	}
	if options.Priority == 0 {
		options.Priority = 50
	}
	if options.MaxMemory == 0 {
		options.MaxMemory = 1 << 30
	}
	c := C.forward_new()
	if c == nil {
		return nil, errors.New("out of memory for the forwarder")
	}
	f := &Forwarder{f: c, started: time.Duration(c.started), late: options.Late, done: make(chan struct{})}
	c.count = C.int(len(ports))
	c.interval = C.int64_t(options.Interval)
	c.priority = C.int(max(0, options.Priority))
	c.processor = C.int(options.CPU)
	c.slots = C.size_t(options.MaxMemory / C.FORWARD_FRAME)
	media := map[*Wifi]*Medium{}
	for i, p := range ports {
		timeline := make([]Change, len(p.Timeline))
		for k, change := range p.Timeline {
			change.At += f.started
			timeline[k] = change
		}
		link, err := NewLink(timeline, p.Seed)
		if err != nil {
			f.free()
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		if p.Wifi != nil {
			if media[p.Wifi] == nil {
				if media[p.Wifi], err = NewMedium(p.Wifi, p.Seed); err == nil {
					f.media = append(f.media, media[p.Wifi])
				}
			}
			if err == nil {
				err = media[p.Wifi].attach(link)
			}
			if err != nil {
				link.Close()
				f.free()
				return nil, fmt.Errorf("%s: %w", p.Name, err)
			}
		}
		c.ports[i] = C.struct_forward_port{in: C.int(p.From.fd), out: C.int(p.To.fd), link: link.link}
		f.names = append(f.names, p.Name)
	}
	go func() {
		// The thread is never unlocked: it ends here, and its scheduling class with it.
		runtime.LockOSThread()
		C.forward_run(c)
		close(f.done)
	}()
	for !C.forward_running(c) {
		select {
		case <-f.done:
			err := f.err()
			f.free()
			return nil, err
		case <-time.After(time.Millisecond):
		}
	}
	return f, nil
}

// Now returns the time since the start, the time base of samples and timelines.
func (f *Forwarder) Now() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail for a valid clock
	return time.Duration(t.Nano()) - f.started
}

// Mark restarts the distributions of delays, waits and queues, to exclude packets from before a
// measurement.
func (f *Forwarder) Mark() { C.forward_mark(f.f) }

// Change replaces the rest of a port's timeline. Times count from the start. The first change
// applies immediately if its time has passed.
func (f *Forwarder) Change(port int, timeline []Change) error {
	conditions := cConditions(timeline, f.started)
	if !C.forward_set(f.f, C.int(port), &conditions[0], C.size_t(len(conditions))) {
		return errors.New("out of memory for a change of conditions")
	}
	return nil
}

// Samples returns the samples since the last call. Call it at least once per hundred intervals. It
// is not safe for concurrent use.
func (f *Forwarder) Samples() []Sample {
	var samples []Sample
	for {
		row := C.forward_read(f.f)
		if row == nil {
			return samples
		}
		s := Sample{End: time.Duration(row.time) - f.started, Links: make([]Counts, len(f.names))}
		for i := range s.Links {
			s.Links[i] = counts(&row.links[i])
		}
		samples = append(samples, s)
		C.forward_read_done(f.f)
	}
}

func counts(c *C.struct_forward_counts) Counts {
	const ms = 1e6
	n := Counts{
		PacketsIn: uint64(c.packets_in), BytesIn: uint64(c.bytes_in),
		PacketsOut: uint64(c.packets_out), BytesOut: uint64(c.bytes_out),
		Lost: uint64(c.lost), LostBurst: uint64(c.lost_burst), QueueFull: uint64(c.queue_full),
		Failed:   uint64(c.failed),
		DelayMin: float64(c.delay_min) / ms, DelayMax: float64(c.delay_max) / ms, QueueMax: uint64(c.queue_max),
	}
	if n.PacketsOut > 0 {
		n.DelayMean = float64(c.delay_sum) / ms / float64(n.PacketsOut)
		n.Jitter = float64(c.jitter_sum) / ms / float64(n.PacketsOut)
	}
	return n
}

// Stop ends the thread, drops the packets in flight and returns the report and the last samples.
// The Forwarder must not be used afterwards.
func (f *Forwarder) Stop() (Report, []Sample, error) {
	C.forward_stop(f.f)
	<-f.done
	samples := f.Samples()
	report := Report{
		RealTime:    f.f.priority > 0 && f.f.scheduling_error == 0,
		CPU:         time.Duration(f.f.cpu),
		Wakes:       uint64(f.f.wakes),
		SamplesLost: uint64(f.f.rows_lost),
	}
	for i, name := range f.names {
		stats := C.link_statistics(f.f.ports[i].link)
		faults := &f.f.faults[i]
		link := LinkReport{
			Name:        name,
			Late:        quantiles(&f.f.late[i], 1e3),
			LatePackets: above(&f.f.late[i], f.late),
			Delay:       quantiles(&f.f.delay[i], 1e6),
			Wait:        quantiles(&stats.wait, 1e6),
			Queue:       quantiles(&stats.occupied, 1),
			Asked:       float64(stats.asked),
			Lost:        uint64(stats.packets[Lost]), Burst: uint64(stats.packets[LostBurst]),
			Full: uint64(stats.packets[QueueFull]),
			Faults: Faults{
				Ring: uint64(faults.ring), Memory: uint64(faults.memory),
				Oversize: uint64(faults.oversize), Send: uint64(faults.send),
			},
		}
		for _, n := range stats.packets {
			link.Arrived += uint64(n)
		}
		link.Wifi = wifiReport(f.f.ports[i].link)
		report.Links = append(report.Links, link)
	}
	err := f.err()
	f.free()
	return report, samples, err
}

// SchedulingError reports why the thread lacks real-time priority. It is nil if the thread has it
// or did not request it.
func (f *Forwarder) SchedulingError() error {
	if f.f.scheduling_error == 0 {
		return nil
	}
	return fmt.Errorf("SCHED_FIFO: %w", unix.Errno(f.f.scheduling_error))
}

func (f *Forwarder) err() error {
	if f.f.error == 0 {
		return nil
	}
	return fmt.Errorf("forwarder: %s: %w", C.GoString(f.f.failed), unix.Errno(f.f.error))
}

func (f *Forwarder) free() {
	for i := range f.f.ports {
		C.link_free(f.f.ports[i].link)
	}
	for _, m := range f.media {
		m.Close()
	}
	C.forward_free(f.f)
	f.f = nil
}
