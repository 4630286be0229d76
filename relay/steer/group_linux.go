//go:build linux && (amd64 || arm64)

package steer

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"holocast/internal/bpfload"
	"holocast/internal/moqt"
	"holocast/internal/udpio"
)

// Group is one process's sockets for one address.
type Group struct {
	sockets []moqt.Socket
	off     error
	first   int // slot of sockets[0]; the others have the following slots
	tags    tagger

	all       *ebpf.Map // sockets of all processes, by slot
	acceptors *ebpf.Map
}

// requirements lists the kernel features needed for steering.
func requirements() []bpfload.Requirement {
	return []bpfload.Requirement{
		{Name: "steering of UDP sockets by eBPF (SK_REUSEPORT)", Since: "4.19", Have: func() error {
			return errors.Join(
				features.HaveProgramType(ebpf.SkReuseport),
				features.HaveMapType(ebpf.ReusePortSockArray),
			)
		}},
	}
}

// Listen opens n sockets, but at least two and at most MaxSockets, at addr ("host:port"), which no
// other program may be using. If the kernel cannot steer packets, it opens one, and Off returns
// why. With the key of an earlier run, packets of that run's connections pass the filter. If key is
// nil, a key is generated.
func Listen(addr string, n int, key *[32]byte) (*Group, error) {
	program, all, acceptors, err := load()
	if err != nil {
		return alone(addr, newTagger(key), fmt.Errorf("%w: %w", ErrOff, err))
	}
	defer func() { _ = program.Close() }()
	g := &Group{all: all, acceptors: acceptors, tags: newTagger(key)}
	if err := g.begin(addr, max(n, 2), program); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// begin opens the group's sockets at an unused address.
func (g *Group) begin(addr string, n int, program *ebpf.Program) error {
	// Open the first socket without SO_REUSEPORT, so that opening it fails if another program uses
	// the address.
	c, err := udpio.Listen(addr, nil)
	if err != nil {
		return err
	}
	conns := []*net.UDPConn{c}
	if err = set(c, unix.SO_REUSEPORT, 1); err == nil {
		conns, err = share(conns, c.LocalAddr().String(), n)
	}
	if err == nil {
		err = set(c, unix.SO_ATTACH_REUSEPORT_EBPF, program.FD())
	}
	if err = g.take(conns, err); err != nil {
		return err
	}
	return g.Accept()
}

// Join opens n sockets at the address of another process, whose Group.Files returned files. They
// receive nothing until Accept is called. key has the same meaning as for Listen.
func Join(addr string, n int, key *[32]byte, files []*os.File) (_ *Group, err error) {
	if len(files) != groupFiles {
		return nil, fmt.Errorf("received %d files from the previous process, want %d", len(files), groupFiles)
	}
	g := &Group{tags: newTagger(key)}
	defer func() {
		if err != nil {
			g.Close()
		}
	}()
	for i, m := range []**ebpf.Map{&g.all, &g.acceptors} {
		fd, err := unix.FcntlInt(files[i].Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err == nil {
			*m, err = ebpf.NewMapFromFD(fd)
		}
		if err != nil {
			return nil, fmt.Errorf("open maps of the previous process: %w", err)
		}
	}
	conns, err := share(nil, addr, n)
	return g, g.take(conns, err)
}

// share opens sockets at addr until there are n.
func share(conns []*net.UDPConn, addr string, n int) ([]*net.UDPConn, error) {
	for len(conns) < min(n, MaxSockets) {
		c, err := udpio.Listen(addr, func(_, _ string, raw syscall.RawConn) error {
			var err error
			return errors.Join(raw.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
			}), err)
		})
		if err != nil {
			return conns, err
		}
		conns = append(conns, c)
	}
	return conns, nil
}

// take assigns slots to sockets. If err is not nil it closes them and returns err.
func (g *Group) take(conns []*net.UDPConn, err error) error {
	if err == nil {
		g.first, err = g.free(len(conns))
	}
	for i, c := range conns {
		slot := g.first + i
		if err == nil {
			err = attach(c, g.tags.filter(shares{rest: 1}))
		}
		if err == nil {
			err = control(c, func(fd int) error { return g.all.Put(uint32(slot), uint64(fd)) })
		}
		if err == nil {
			g.sockets = append(g.sockets, moqt.Socket{Conn: c, IDs: ids{byte(slot), g.tags}})
		} else {
			_ = c.Close()
		}
	}
	if err != nil {
		return fmt.Errorf("steer packets to sockets: %w", err)
	}
	return nil
}

// free returns the first of n consecutive free slots.
func (g *Group) free(n int) (first int, err error) {
	for slot := range slots {
		var cookie uint64
		switch err := g.all.Lookup(uint32(slot), &cookie); {
		case err == nil:
			first = slot + 1
		case !errors.Is(err, ebpf.ErrKeyNotExist):
			return 0, err
		case slot+1-first == n:
			return first, nil
		}
	}
	return 0, errors.New("no free slots: too many previous processes are still running")
}

// Accept directs new connections only to this group's sockets.
func (g *Group) Accept() error {
	if g.off != nil {
		return nil //nolint:nilerr // the only socket gets every packet
	}
	if err := g.acceptors.Put(uint32(0), steerAccepting{
		First: uint32(g.first),
		Count: uint32(len(g.sockets)),
	}); err != nil {
		return fmt.Errorf("accept new connections: %w", err)
	}
	return nil
}

// groupFiles is the number of files of a group.
const groupFiles = 2

// Files returns the files that another process passes to Join. The caller closes them.
func (g *Group) Files() ([]*os.File, error) {
	if g.off != nil {
		return nil, g.off
	}
	var files []*os.File
	for _, m := range []*ebpf.Map{g.all, g.acceptors} {
		fd, err := unix.FcntlInt(uintptr(m.FD()), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			for _, f := range files {
				_ = f.Close()
			}
			return nil, err
		}
		files = append(files, os.NewFile(uintptr(fd), "steer"))
	}
	return files, nil
}

// Close closes the sockets. The kernel keeps the steering state while other processes use it.
func (g *Group) Close() {
	for _, s := range g.sockets {
		_ = s.Conn.Close()
	}
	for _, m := range []*ebpf.Map{g.all, g.acceptors} {
		if m != nil {
			_ = m.Close()
		}
	}
}

func load() (program *ebpf.Program, all, acceptors *ebpf.Map, err error) {
	if err := features.HaveProgramType(ebpf.SkReuseport); errors.Is(err, unix.EPERM) {
		return nil, nil, nil, errPrivilege
	}
	if err := bpfload.Missing(requirements()); err != nil {
		return nil, nil, nil, err
	}
	if err := rlimit.RemoveMemlock(); err != nil { // needed before Linux 5.11
		return nil, nil, nil, fmt.Errorf("raise locked memory limit: %w", err)
	}
	var o steerObjects
	if err := loadSteerObjects(&o, nil); err != nil {
		return nil, nil, nil, bpfload.Explain("load eBPF programs", err, requirements())
	}
	return o.Steer, o.Sockets, o.Acceptors, nil
}

// errPrivilege differs from bpfload.ErrPrivilege because sockets need fewer privileges than
// interfaces.
var errPrivilege = fmt.Errorf("it needs root or CAP_BPF: %w", unix.EPERM)

// set sets an integer option of a socket.
func set(c *net.UDPConn, option, value int) error {
	return control(c, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, value) })
}

func control(c *net.UDPConn, do func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	e := raw.Control(func(fd uintptr) { err = do(int(fd)) })
	return errors.Join(e, err)
}
