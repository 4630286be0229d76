package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"holocast/netfunc/signal"
)

// repeatProgram measures a program on one packet in kernel test runs.
func repeatProgram(b *testing.B, h *host, program *ebpf.Program, frame []byte) {
	b.Helper()
	in := apart
	if h != nil {
		in = h.do
	}
	err := in(func() error {
		var costs []float64
		for b.Loop() {
			// Many packets per test run hide the cost of the system call.
			run := ebpf.RunOptions{Data: frame, Repeat: repeats}
			start := threadTime()
			if _, err := program.Run(&run); err != nil {
				return err
			}
			costs = append(costs, float64((threadTime()-start).Nanoseconds())/repeats)
		}
		b.ReportMetric(median(costs), "ns/packet")
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(0, "ns/op")
}

// threadTime returns the CPU time of the calling thread. Apart from cache effects, it excludes other
// load.
func threadTime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts) // cannot fail for this clock
	return time.Duration(ts.Nano())
}

const repeats = 20_000

// BenchmarkEliminate measures the receiver's cost per packet, including arrival reports and their
// reader.
func BenchmarkEliminate(b *testing.B) {
	const always = 1<<32 - 64 // packets are immediately stale, so each is a first replica
	full := media6(1)         // with all of its payload hashed
	full.body = udp(4443, 50000, make([]byte, 1200))
	for _, v := range []struct {
		name   string
		packet packet
		first  bool
	}{
		{"first, IPv4", media4(1), true},
		{"later, IPv4", media4(1), false},
		{"first, IPv6", media6(1), true},
		{"later, IPv6", media6(1), false},
		{"first, IPv6, 1248 bytes", full, true},
		{"later, IPv6, 1248 bytes", full, false},
	} {
		b.Run(v.name, func(b *testing.B) {
			spec, err := receiverSpec(ReceiverOptions{})
			if err == nil && v.first {
				err = set(spec, map[string]any{receiverVarStale: uint32(always)})
			}
			c := unpinned(b, spec, err)
			r := &Receiver{maps: c.Maps, done: make(chan struct{})}
			// The program restores the DSCP to that of path 1, so that the packet is still a replica when
			// the test run reuses it.
			for _, dst := range []netip.Addr{viewer4, viewer6} {
				if err := r.SetFlow(dst, Flow{DSCP: Codepoint(1), Paths: 7}); err != nil {
					b.Fatal(err)
				}
			}
			stop := drain(b, c.Maps[receiverMapArrivals])
			repeatProgram(b, nil, c.Programs[receiverProgEliminate], v.packet.on(1).frame())
			stop()
			s := mustReceived(b, r)
			if first := s.Paths[0].First > s.Paths[0].Late; first != v.first || s.Unknown+s.Short != 0 {
				b.Fatalf("%+v", s)
			}
			b.ReportMetric(100*float64(s.RingFull)/float64(s.Paths[0].First+s.Paths[0].Late), "%unreported")
		})
	}
	b.Run("other traffic", func(b *testing.B) {
		g := newGate(b, ReceiverOptions{})
		repeatProgram(b, nil, g.program, media4(1).frame())
	})
	b.Run("empty program", func(b *testing.B) { // cost of the test run itself
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Type: ebpf.XDP, License: "MIT", Instructions: asm.Instructions{
				asm.Mov.Imm(asm.R0, int32(xdpPass)),
				asm.Return(),
			},
		})
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = p.Close() }()
		repeatProgram(b, nil, p, media4(1).frame())
	})
}

// drain keeps a ring empty by setting its consumer position to the producer's every 200 µs. Unlike
// a real reader, it takes hardly any CPU time.
func drain(b *testing.B, m *ebpf.Map) (stop func()) {
	b.Helper()
	page := unix.Getpagesize()
	consumer, err := unix.Mmap(m.FD(), 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		b.Fatal(err)
	}
	producer, err := unix.Mmap(m.FD(), int64(page), page, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		b.Fatal(err)
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			default:
				binary.NativeEndian.PutUint64(consumer, binary.NativeEndian.Uint64(producer))
				time.Sleep(200 * time.Microsecond)
			}
		}
	}()
	return func() {
		close(done)
		<-ended
		_ = unix.Munmap(consumer)
		_ = unix.Munmap(producer)
	}
}

// BenchmarkSignal measures the cost of a signalling packet with a valid HMAC.
func BenchmarkSignal(b *testing.B) {
	bench := newSignalBench(b, SenderOptions{})
	payload := message(b, testKey, signal.Message{Destination: viewer4, Paths: 7, Nonce: 200})
	frame := bench.signalFrame(payload).frame()
	b.Run("verified", func(b *testing.B) { // all but the first are then rejected as replayed
		repeatProgram(b, bench.host, bench.programs[senderProgMonitor], frame)
	})
	frame[len(frame)-65] ^= 1
	payload = append([]byte{'h'}, payload[1:]...)
	b.Run("malformed", func(b *testing.B) {
		repeatProgram(b, bench.host, bench.programs[senderProgMonitor], bench.signalFrame(payload).frame())
	})
	b.Run("no signal", func(b *testing.B) {
		repeatProgram(b, bench.host, bench.programs[senderProgMonitor], media4(1).frame())
	})
}

// injector returns an XDP program that rewrites the first bytes of a frame and passes it to the
// stack, so that a test run can reuse a frame the stack has changed.
func injector(b *testing.B, frame []byte) *ebpf.Program {
	b.Helper()
	const n = 34 // Ethernet and IPv4
	code := asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), // data
		asm.LoadMem(asm.R3, asm.R1, 4, asm.Word), // data_end
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, n),
		asm.JGT.Reg(asm.R4, asm.R3, "out"),
	}
	for at := 0; at+8 <= n; at += 8 {
		code = append(code,
			asm.LoadImm(asm.R5, int64(binary.NativeEndian.Uint64(frame[at:])), asm.DWord),
			asm.StoreMem(asm.R2, int16(at), asm.R5, asm.DWord))
	}
	code = append(code,
		asm.StoreImm(asm.R2, n-2, int64(binary.NativeEndian.Uint16(frame[n-2:])), asm.Half),
		asm.Mov.Imm(asm.R0, int32(xdpPass)).WithSymbol("out"),
		asm.Return())
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "MIT", Instructions: code})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = p.Close() })
	return p
}

// sink drops everything that an interface receives, before the stack sees it.
func (h *host) sink(b *testing.B, name string) {
	b.Helper()
	h.drop(b, name, asm.Instructions{asm.Mov.Imm(asm.R0, int32(xdpDrop)), asm.Return()})
}

// sinkOf drops packets that an interface receives for the IPv4 addresses of a /16.
func (h *host) sinkOf(b *testing.B, name string, prefix [2]byte) {
	b.Helper()
	const destination = 30 // offset after the Ethernet header
	h.drop(b, name, asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), // data
		asm.LoadMem(asm.R3, asm.R1, 4, asm.Word), // data_end
		asm.Mov.Imm(asm.R0, int32(xdpPass)),
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, destination+2),
		asm.JGT.Reg(asm.R4, asm.R3, "out"),
		asm.LoadMem(asm.R5, asm.R2, destination, asm.Half),
		asm.JNE.Imm(asm.R5, int32(binary.NativeEndian.Uint16(prefix[:])), "out"),
		asm.Mov.Imm(asm.R0, int32(xdpDrop)),
		asm.Return().WithSymbol("out"),
	})
}

// drop attaches an XDP program with the given instructions, which drop packets.
func (h *host) drop(b *testing.B, name string, code asm.Instructions) {
	b.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "MIT", Instructions: code})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	index := h.index(b, name)
	h.must(b, func() error {
		l, err := link.AttachXDP(link.XDPOptions{Program: p, Interface: index, Flags: link.XDPDriverMode})
		if err == nil {
			b.Cleanup(func() { _ = l.Close() })
		}
		return err
	})
}

// BenchmarkReplica measures the sender's CPU time per packet, from its arrival until it has left on
// all paths, for plain forwarding, one path, two paths and so on. The far ends of the paths drop the
// packets. ns/replica is the increment per path after the first.
func BenchmarkReplica(b *testing.B) {
	const paths = 4
	pin := pins(b)
	edge, far := newHost(b), newHost(b)
	cable(b, edge, "lan", far, "lan")
	edge.address(b, "lan", "10.1.0.1/24")
	edge.enable(b, "ipv4/ip_forward")
	dst := addr("10.3.0.2")
	for i := 1; i <= paths; i++ {
		name := fmt.Sprint("path", i)
		cable(b, edge, name, far, name)
		edge.address(b, name, fmt.Sprintf("10.2.%d.1/24", i))
		far.sink(b, name)
	}
	edge.route(b, "10.3.0.0/24", "10.2.1.2")
	neighbour := &netlink.Neigh{
		LinkIndex: edge.index(b, "path1"), State: netlink.NUD_PERMANENT,
		IP: net.ParseIP("10.2.1.2"), HardwareAddr: far.mac(b, "path1"),
	}
	if err := edge.nl.NeighSet(neighbour); err != nil {
		b.Fatal(err)
	}
	var sender *Sender
	edge.must(b, func() (err error) {
		sender, err = OpenSender(SenderOptions{Pin: pin, Attach: []Attach{{"lan", Ingress}}})
		return err
	})
	defer func() { edge.must(b, func() error { return sender.Detach() }) }()
	for i := 1; i <= paths; i++ {
		name := fmt.Sprint("path", i)
		err := sender.SetPath(
			Path{
				Index:     i,
				Interface: edge.index(b, name),
				Source:    edge.mac(b, name),
				NextHop:   far.mac(b, name),
				Up:        true,
			},
		)
		if err != nil {
			b.Fatal(err)
		}
	}
	frame := packet{
		nextHop: [6]byte(edge.mac(b, "lan")), source: [6]byte(far.mac(b, "lan")), src: addr("10.1.0.2"), dst: dst,
		tos: 2, fragment: 0x4000, proto: unix.IPPROTO_UDP, body: udp(1, 2, make([]byte, 1200)),
	}.frame()
	program := injector(b, frame)
	lan := edge.index(b, "lan")

	const live = 1 << 1 // BPF_F_TEST_XDP_LIVE_FRAMES, since Linux 5.18
	cost := func(packets uint32) time.Duration {
		var spent time.Duration
		edge.must(b, func() error {
			// struct xdp_md; the frame arrives on the interface.
			run := ebpf.RunOptions{Data: frame, Repeat: packets, Flags: live, Context: struct {
				Data, DataEnd, DataMeta, Ingress, Queue, Egress uint32
			}{DataEnd: uint32(len(frame)), Ingress: uint32(lan)}}
			start := threadTime()
			_, err := program.Run(&run)
			spent = threadTime() - start
			return err
		})
		return spent
	}
	const packets = 50_000
	perPacket := make([][]float64, paths+1)
	for b.Loop() {
		for n := range paths + 1 { // 0 is plain forwarding; interleaved to spread the effect of other load
			if err := sender.SetPolicy(dst, uint8(1<<n-1)); err != nil {
				b.Fatal(err)
			}
			perPacket[n] = append(perPacket[n], float64(cost(packets).Nanoseconds())/packets)
		}
	}
	s := mustStats(b, sender)
	if s.Paths[paths-1].Packets == 0 || s.Unusable+s.Failed+s.Paths[0].Errors != 0 {
		b.Fatalf("%+v", s)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(perPacket[0]), "ns/forwarded")
	for n := 1; n <= paths; n++ {
		b.ReportMetric(median(perPacket[n]), fmt.Sprintf("ns/%d-paths", n))
	}
	b.ReportMetric((median(perPacket[paths])-median(perPacket[1]))/(paths-1), "ns/replica")
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}

// BenchmarkLatency measures the time from sending a datagram to its arrival at the viewer's socket,
// alternating between plain forwarding and duplication over three paths.
func BenchmarkLatency(b *testing.B) {
	p := newPair(b)
	p.open(b)
	p.warm(b)
	dst := pairViewer[0]
	in := p.viewer.socket(b, netip.AddrPortFrom(dst, 0))
	out := p.source.socket(b, netip.AddrPort{})
	control(b, in, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) })
	to := in.LocalAddr().(*net.UDPAddr).AddrPort()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	payload, buf, oob := make([]byte, 1200), make([]byte, 2000), make([]byte, 200)
	times := make([][]float64, 2)
	n := uint64(1 << 33)
	for b.Loop() {
		for mode, bits := range []uint8{0, 7} {
			if err := p.sender.SetPolicy(dst, bits); err != nil {
				b.Fatal(err)
			}
			for i := range 50 {
				n++
				fill(payload, n)
				start := time.Now()
				if _, err := out.WriteToUDPAddrPort(payload, to); err != nil {
					b.Fatal(err)
				}
				_ = in.SetReadDeadline(start.Add(time.Second))
				_, k, _, _, err := in.ReadMsgUDPAddrPort(buf, oob)
				if err != nil {
					b.Fatal(err)
				}
				control, err := unix.ParseSocketControlMessage(oob[:k])
				if err != nil || len(control) != 1 {
					b.Fatal(control, err)
				}
				at := time.Unix(
					int64(binary.NativeEndian.Uint64(control[0].Data)),
					int64(binary.NativeEndian.Uint64(control[0].Data[8:])),
				)
				if i >= 5 { // caches are cold for the first packets of a block
					times[mode] = append(times[mode], float64(at.UnixNano()-start.UnixNano()))
				}
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(times[0]), "ns/plain-p50")
	b.ReportMetric(median(times[1]), "ns/duplicated-p50")
	b.ReportMetric(median(times[1])-median(times[0]), "ns/added-p50")
}

// BenchmarkFlows sends as much as two CPUs can carry to 1000 viewers through two edges and eight
// paths, without duplication and over two, four and all eight paths. It reports delivered
// packets/s, CPU time of the whole machine per packet, losses from overload, and the delay of
// packets to one more viewer.
func BenchmarkFlows(b *testing.B) {
	const viewers = 1000
	p := newPair(b)
	var names []string
	for i := 1; i <= MaxPaths; i++ {
		name := fmt.Sprint("path", i)
		if i > pairPaths {
			cable(b, p.a, name, p.b, name)
		}
		names = append(names, name)
	}
	p.openSender(b)
	p.b.must(b, func() (err error) {
		p.receiver, err = OpenReceiver(ReceiverOptions{Pin: p.pin, Interfaces: names})
		return err
	})
	b.Cleanup(func() {
		p.a.must(b, func() error { return p.sender.Detach() })
		p.b.must(b, func() error { return p.receiver.Detach() })
	})
	for i := 1; i <= MaxPaths; i++ {
		p.setPath(b, i, true)
	}
	p.a.route(b, "10.4.0.0/16", "10.2.1.2")
	p.b.route(b, "10.4.0.0/16", "10.3.0.2")
	p.viewer.sinkOf(b, "lan", [2]byte{10, 4})
	destinations := []netip.Addr{pairViewer[0]}
	for i := range viewers {
		destinations = append(destinations, netip.AddrFrom4([4]byte{10, 4, byte(i >> 8), byte(i)}))
	}
	for _, dst := range destinations {
		if err := p.receiver.SetFlow(dst, Flow{Paths: 1<<MaxPaths - 1}); err != nil {
			b.Fatal(err)
		}
	}
	warm := p.stream(b, traffic{dst: pairViewer[0], size: 100}, 100, 50*time.Millisecond)
	if warm.received == 0 {
		b.Fatal("no packet arrives")
	}
	in := p.viewer.socket(b, netip.AddrPortFrom(pairViewer[0], 0))
	control(b, in, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) })
	out := p.source.socket(b, netip.AddrPort{})
	var loads []*net.UDPConn
	for range 2 {
		loads = append(loads, p.source.socket(b, netip.AddrPort{}))
	}

	modes := []int{0, 2, 4, 8}
	type sums struct{ rate, cpu, lost, delay []float64 }
	results := make([]sums, len(modes))
	for b.Loop() {
		for m, paths := range modes {
			for _, dst := range destinations {
				if err := p.sender.SetPolicy(dst, uint8(1<<paths-1)); err != nil {
					b.Fatal(err)
				}
			}
			first, probes := firsts(mustReceived(b, p.receiver)), uint64(0)
			busy, came, start := busyTime(b), p.forwarded(b), time.Now()
			stop := make(chan struct{})
			var sent atomic.Int64
			var wg sync.WaitGroup
			for _, c := range loads {
				wg.Go(func() { sent.Add(flood(b, c, destinations[1:], stop)) })
			}
			for time.Since(start) < 500*time.Millisecond {
				probes++
				if d, ok := delayOf(b, in, out); ok {
					results[m].delay = append(results[m].delay, d)
				}
				time.Sleep(time.Millisecond)
			}
			close(stop)
			wg.Wait()
			took, spent := time.Since(start), busyTime(b)-busy
			time.Sleep(20 * time.Millisecond) // let the last ones arrive
			if got := firsts(mustReceived(b, p.receiver)) - first; got > uint64(sent.Load())+probes {
				b.Errorf("%d paths: %d first replicas of %d packets", paths, got, uint64(sent.Load())+probes)
			}
			n := float64(p.forwarded(b) - came)
			results[m].rate = append(results[m].rate, n/took.Seconds())
			results[m].cpu = append(results[m].cpu, float64(spent.Nanoseconds())/n)
			results[m].lost = append(results[m].lost, 100*max(0, 1-n/float64(sent.Load())))
		}
	}
	b.ReportMetric(0, "ns/op")
	for m, paths := range modes {
		name := "plain"
		if paths > 0 {
			name = fmt.Sprint(paths, "-paths")
		}
		r := results[m]
		b.ReportMetric(median(r.rate), "packets/s-"+name)
		b.ReportMetric(median(r.cpu), "cpu-ns/packet-"+name)
		b.ReportMetric(median(r.lost), "%lost-"+name)
		if len(r.delay) > 0 {
			slices.Sort(r.delay)
			b.ReportMetric(median(r.delay)/1000, "µs-p50-"+name)
			b.ReportMetric(r.delay[len(r.delay)*99/100]/1000, "µs-p99-"+name)
		}
	}
}

// firsts returns the number of first replicas on all paths.
func firsts(s ReceiverStats) (n uint64) {
	for _, p := range s.Paths {
		n += p.First
	}
	return n
}

// forwarded returns the number of packets the far edge has sent towards the viewers.
func (p *pair) forwarded(b *testing.B) uint64 {
	b.Helper()
	return p.b.link(b, "lan").Attrs().Statistics.TxPackets
}

// flood sends datagrams to the destinations in turn and returns their number.
func flood(b *testing.B, c *net.UDPConn, destinations []netip.Addr, stop <-chan struct{}) (n int64) {
	pc := ipv4.NewPacketConn(c)
	messages := make([]ipv4.Message, 64)
	for i := range messages {
		messages[i].Buffers = [][]byte{make([]byte, 1200)}
	}
	for next := uint64(0); ; {
		select {
		case <-stop:
			return n
		default:
		}
		for i := range messages {
			fill(messages[i].Buffers[0], next)
			messages[i].Addr = &net.UDPAddr{IP: destinations[next%uint64(len(destinations))].AsSlice(), Port: 9}
			next++
		}
		w, err := pc.WriteBatch(messages, 0)
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			b.Error(err)
			return n
		}
		n += int64(max(w, 0))
	}
}

// delayOf sends a datagram and returns the nanoseconds until it reached the viewer's socket, or
// false if it was lost to overload.
func delayOf(b *testing.B, in, out *net.UDPConn) (float64, bool) {
	b.Helper()
	payload, buf, oob := make([]byte, 1200), make([]byte, 2000), make([]byte, 200)
	start := time.Now()
	fill(payload, uint64(start.UnixNano()))
	if _, err := out.WriteToUDPAddrPort(payload, in.LocalAddr().(*net.UDPAddr).AddrPort()); err != nil {
		return 0, false
	}
	_ = in.SetReadDeadline(start.Add(100 * time.Millisecond))
	for {
		n, k, _, _, err := in.ReadMsgUDPAddrPort(buf, oob)
		if err != nil {
			return 0, false
		}
		if !bytes.Equal(buf[:n], payload) {
			continue // a late datagram that was counted as lost
		}
		control, err := unix.ParseSocketControlMessage(oob[:k])
		if err != nil || len(control) != 1 {
			b.Fatal(control, err)
		}
		at := time.Unix(
			int64(binary.NativeEndian.Uint64(control[0].Data)),
			int64(binary.NativeEndian.Uint64(control[0].Data[8:])),
		)
		return float64(at.UnixNano() - start.UnixNano()), true
	}
}

// busyTime returns the accumulated busy time of all CPUs.
func busyTime(b *testing.B) time.Duration {
	b.Helper()
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		b.Fatal(err)
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	var ticks int64 // units of 10 ms
	for i, field := range strings.Fields(line)[1:9] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		if i != 3 && i != 4 { // neither idle nor iowait
			ticks += n
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// BenchmarkLive measures the programs' run time while packets flow over three paths to a viewer, with
// realistic caches. It includes the two clock readings per run that the kernel's statistics make.
func BenchmarkLive(b *testing.B) {
	p := newPair(b)
	p.open(b)
	p.warm(b)
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = stats.Close() }()
	sender, receiver := runtimeOf(b, senderDir(p.pin)), runtimeOf(b, receiverDir(p.pin))
	for b.Loop() {
		p.stream(b, traffic{dst: pairViewer[0], size: 1200}, 50_000, 500*time.Millisecond).check(b)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(sender(), "ns/duplicate")
	b.ReportMetric(receiver(), "ns/eliminate")
}

// runtimeOf returns a function that reports the mean run time, in ns, of the program pinned in dir,
// measured from the call to runtimeOf.
func runtimeOf(b *testing.B, dir string) (mean func() float64) {
	b.Helper()
	pinned, err := filepath.Glob(filepath.Join(dir, "link-*"))
	if err != nil || len(pinned) == 0 {
		b.Skip("TCX is missing: only its links identify the program")
	}
	l, err := link.LoadPinnedLink(pinned[0], nil)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	info, err := l.Info()
	if err != nil {
		b.Fatal(err)
	}
	program, err := ebpf.NewProgramFromID(info.Program)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = program.Close() })
	read := func() *ebpf.ProgramStats {
		s, err := program.Stats()
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	before := read()
	return func() float64 {
		after := read()
		return float64((after.Runtime - before.Runtime).Nanoseconds()) / float64(after.RunCount-before.RunCount)
	}
}
