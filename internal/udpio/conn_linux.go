package udpio

import (
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// Conn is a UDP socket. Only one goroutine at a time may call ReadBatch or ReadPiece; other methods
// may be called from any goroutine.
//
// Its system calls do not block, so it does not announce them to the Go scheduler. The scheduler
// would wake another thread for each call longer than 20 µs, such as sending a batch over loopback.
type Conn struct {
	*net.UDPConn
	raw    syscall.RawConn
	family uint16
	writes sync.Pool // of *write
	read   read
}

// Wrap returns a Conn for c, or c itself if the system does not support that.
func Wrap(c *net.UDPConn) net.PacketConn {
	raw, err := c.SyscallConn()
	if err != nil {
		return c
	}
	u := &Conn{UDPConn: c, raw: raw}
	if err := raw.Control(func(fd uintptr) {
		switch name, _ := unix.Getsockname(int(fd)); name.(type) {
		case *unix.SockaddrInet4:
			u.family = unix.AF_INET
		case *unix.SockaddrInet6:
			u.family = unix.AF_INET6
		default:
			return
		}
		// Fails before Linux 5.0, where each datagram arrives separately.
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_GRO, 1)
	}); err != nil || u.family == 0 {
		return c
	}
	u.writes.New = func() any {
		w := &write{}
		w.call = w.sendmsg
		return w
	}
	u.read.init()
	return u
}

// DisableGRO makes a socket receive each datagram separately. Otherwise the kernel may merge
// datagrams before eBPF programs see them.
func DisableGRO(c *net.UDPConn) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_GRO, 0) })
	}
}

// DropStrays is for a socket that the kernel selects by the first byte of the connection ID in
// short-header packets (RFC 9000 §17.3). The kernel checks only the first of several merged
// datagrams. DropStrays drops datagrams that belong to another socket; otherwise quic-go would
// answer them with stateless resets.
func DropStrays(c net.PacketConn) {
	if c, ok := c.(*Conn); ok {
		c.read.strays = true
	}
}

// Tap calls f with each received message, one or more datagrams from a peer, before it is
// processed. Nil removes the tap.
func Tap(c net.PacketConn, f func(from *net.UDPAddr, message []byte, datagrams int)) {
	if c, ok := c.(*Conn); ok {
		c.read.tap = f
	}
}

// write holds the arguments of one sendmsg call.
type write struct {
	message unix.Msghdr
	data    unix.Iovec
	name    unix.RawSockaddrInet6
	n       uintptr
	errno   syscall.Errno
	call    func(fd uintptr) (done bool)
}

func (w *write) sendmsg(fd uintptr) bool {
	for {
		w.n, _, w.errno = syscall.RawSyscall(
			unix.SYS_SENDMSG,
			fd,
			uintptr(unsafe.Pointer(&w.message)),
			unix.MSG_DONTWAIT,
		)
		if w.errno != unix.EINTR {
			return w.errno != unix.EAGAIN
		}
	}
}

// WriteMsgUDP writes b to addr with control messages, like net.UDPConn.
func (c *Conn) WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error) {
	w := c.writes.Get().(*write)
	size, err := setName(&w.name, c.family, addr)
	if err == nil {
		w.data = unix.Iovec{Base: unsafe.SliceData(b)}
		w.data.SetLen(len(b))
		w.message = unix.Msghdr{Name: (*byte)(unsafe.Pointer(&w.name)), Namelen: size, Iov: &w.data}
		w.message.SetIovlen(1)
		if len(oob) > 0 {
			w.message.Control = unsafe.SliceData(oob)
			w.message.SetControllen(len(oob))
		}
		if err = c.raw.Write(w.call); err == nil && w.errno != 0 {
			err = os.NewSyscallError("sendmsg", w.errno)
		}
	}
	n = int(w.n)
	w.data.Base, w.message.Control = nil, nil
	c.writes.Put(w)
	if err != nil {
		return 0, 0, &net.OpError{Op: "write", Net: "udp", Source: c.LocalAddr(), Addr: addr, Err: err}
	}
	return n, len(oob), nil
}

// setName encodes addr for a socket of the given family and returns the encoded size.
func setName(name *unix.RawSockaddrInet6, family uint16, addr *net.UDPAddr) (size uint32, err error) {
	port := uint16(addr.Port)
	*name = unix.RawSockaddrInet6{Family: family}
	p := (*[2]byte)(unsafe.Pointer(&name.Port))
	p[0], p[1] = byte(port>>8), byte(port)
	if family == unix.AF_INET {
		ip := addr.IP.To4()
		if ip == nil {
			return 0, &net.AddrError{Err: "no IPv4 address", Addr: addr.IP.String()}
		}
		copy((*unix.RawSockaddrInet4)(unsafe.Pointer(name)).Addr[:], ip)
		return unix.SizeofSockaddrInet4, nil
	}
	ip := addr.IP.To16()
	if ip == nil {
		return 0, &net.AddrError{Err: "no IP address", Addr: addr.IP.String()}
	}
	copy(name.Addr[:], ip)
	if addr.Zone != "" {
		name.Scope_id = zoneIndex(addr.Zone)
	}
	return unix.SizeofSockaddrInet6, nil
}

func zoneIndex(zone string) uint32 {
	if i, err := net.InterfaceByName(zone); err == nil {
		return uint32(i.Index)
	}
	n, _ := strconv.ParseUint(zone, 10, 32)
	return uint32(n)
}

const (
	batchSize = 8 // messages per recvmmsg call
	oobSize   = 256
)

// PieceSize is the maximum size of merged datagrams.
const PieceSize = 1 << 16

// received is struct mmsghdr.
type received struct {
	header unix.Msghdr
	size   uint32
	_      [unsafe.Sizeof(uintptr(0)) - 4]byte
}

// read holds the messages of one recvmmsg call that ReadBatch has not returned yet.
type read struct {
	messages [batchSize]received
	data     [batchSize]unix.Iovec
	names    [batchSize]unix.RawSockaddrInet6
	oob      [batchSize][oobSize]byte
	buffers  [batchSize][]byte // PieceSize bytes each
	n        uintptr
	errno    syscall.Errno
	call     func(fd uintptr) (done bool)

	tap    func(from *net.UDPAddr, message []byte, datagrams int)
	strays bool   // drop datagrams of other sockets
	first  []byte // first datagram of the message before next

	next    int    // next message
	rest    []byte // rest of the message before next
	segment int    // size of its datagrams, except the last
	addr    *net.UDPAddr
	control []byte
}

func (r *read) init() {
	for i := range r.buffers {
		r.use(i, make([]byte, PieceSize))
	}
	r.call = r.recvmmsg
}

// use makes buffer the receive buffer of the i-th message.
func (r *read) use(i int, buffer []byte) {
	r.buffers[i] = buffer
	r.data[i].Base = &buffer[0]
	r.data[i].SetLen(PieceSize)
}

func (r *read) recvmmsg(fd uintptr) bool {
	for i := range r.messages {
		h := &r.messages[i].header
		*h = unix.Msghdr{
			Name:    (*byte)(unsafe.Pointer(&r.names[i])),
			Namelen: unix.SizeofSockaddrInet6,
			Iov:     &r.data[i],
			Control: &r.oob[i][0],
		}
		h.SetIovlen(1)
		h.SetControllen(oobSize)
	}
	for {
		r.n, _, r.errno = syscall.RawSyscall6(
			unix.SYS_RECVMMSG,
			fd,
			uintptr(unsafe.Pointer(&r.messages)),
			batchSize,
			unix.MSG_DONTWAIT,
			0,
			0,
		)
		if r.errno != unix.EINTR {
			return r.errno != unix.EAGAIN
		}
	}
}

// ReadBatch reads at least one datagram: N bytes into ms[i].Buffers[0] and NN bytes of control
// messages into OOB. It returns the number of datagrams. Longer datagrams are truncated; empty
// ones, which are not QUIC, are skipped.
func (c *Conn) ReadBatch(ms []ipv4.Message, _ int) (n int, err error) {
	r := &c.read
	for n < len(ms) {
		for len(r.rest) == 0 && r.next < int(r.n) {
			r.take()
		}
		if len(r.rest) == 0 {
			if n > 0 {
				return n, nil
			}
			if err := c.receive(); err != nil {
				return 0, err
			}
			continue
		}
		size := min(r.segment, len(r.rest))
		if r.strays && stray(r.first, r.rest[:size]) {
			r.rest = r.rest[size:]
			continue
		}
		m := &ms[n]
		m.N, m.NN, m.Addr, m.Flags = copy(m.Buffers[0], r.rest[:size]), copy(m.OOB, r.control), r.addr, 0
		r.rest = r.rest[size:]
		n++
	}
	return n, nil
}

// receive waits for messages.
func (c *Conn) receive() error {
	r := &c.read
	r.next, r.n = 0, 0
	if err := c.raw.Read(r.call); err != nil {
		return err
	}
	if r.errno != 0 {
		r.n = 0
		return &net.OpError{Op: "read", Net: "udp", Source: c.LocalAddr(), Err: os.NewSyscallError("recvmmsg", r.errno)}
	}
	return nil
}

// ReadPiece reads merged datagrams of one peer. Each has segment bytes, except that the last may be
// shorter. The results are valid until the next call of ReadPiece or ReadBatch.
func (c *Conn) ReadPiece() (piece []byte, segment int, addr *net.UDPAddr, control []byte, err error) {
	r := &c.read
	for len(r.rest) == 0 {
		if r.next == int(r.n) {
			if err := c.receive(); err != nil {
				return nil, 0, nil, nil, err
			}
			continue
		}
		r.take()
		if r.strays {
			r.dropStrays()
		}
	}
	piece, r.rest = r.rest, nil
	return piece, r.segment, r.addr, r.control, nil
}

// KeepPiece transfers the buffer returned by ReadPiece, with its full capacity, to the caller, and
// replaces it with next, a buffer of PieceSize bytes.
func (c *Conn) KeepPiece(next []byte) { c.read.use(c.read.next-1, next) }

// dropStrays removes datagrams of other sockets from the current message.
func (r *read) dropStrays() {
	kept := 0
	for at := 0; at < len(r.rest); at += r.segment {
		packet := r.rest[at:min(at+r.segment, len(r.rest))]
		if !stray(r.first, packet) {
			kept += copy(r.rest[kept:], packet)
		}
	}
	r.rest = r.rest[:kept]
}

// stray reports whether packet belongs to a different socket from the first packet of its message.
func stray(first, packet []byte) bool {
	const long = 0x80
	return len(first) > 1 && len(packet) > 1 && (first[0]|packet[0])&long == 0 && first[1] != packet[1]
}

// take advances to the next message.
func (r *read) take() {
	i := r.next
	m := &r.messages[i]
	r.next++
	r.rest = r.buffers[i][:m.size]
	r.segment = int(m.size)
	r.first = r.rest
	r.addr = udpAddr(&r.names[i])
	r.control = r.oob[i][:0]
	for oob := r.oob[i][:m.header.Controllen]; len(oob) > 0; {
		header, body, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			break
		}
		if header.Level == unix.IPPROTO_UDP && header.Type == unix.UDP_GRO {
			if len(body) >= 4 {
				if size := *(*int32)(unsafe.Pointer(&body[0])); size > 0 {
					r.segment = int(size)
				}
			}
		} else { // close the gap left by dropped datagrams
			r.control = append(r.control, oob[:len(oob)-len(rest)]...)
		}
		oob = rest
	}
	if r.tap != nil && len(r.rest) > 0 {
		r.tap(r.addr, r.rest, (len(r.rest)+r.segment-1)/r.segment)
	}
}

func udpAddr(name *unix.RawSockaddrInet6) *net.UDPAddr {
	p := (*[2]byte)(unsafe.Pointer(&name.Port))
	a := &net.UDPAddr{Port: int(p[0])<<8 | int(p[1])}
	if name.Family == unix.AF_INET {
		ip := (*unix.RawSockaddrInet4)(unsafe.Pointer(name)).Addr
		a.IP = net.IPv4(ip[0], ip[1], ip[2], ip[3])
		return a
	}
	a.IP = append(net.IP(nil), name.Addr[:]...)
	if name.Scope_id != 0 {
		a.Zone = strconv.FormatUint(uint64(name.Scope_id), 10)
		if i, err := net.InterfaceByIndex(int(name.Scope_id)); err == nil {
			a.Zone = i.Name
		}
	}
	return a
}
