//go:build linux

package upgrade

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Control accepts requests for an upgrade on an abstract Unix socket named after the process's UDP
// address. Only root and the process's own user may send them.
type Control struct {
	ln *net.UnixListener
}

// controlName returns the socket's name for a UDP address ("host:port").
func controlName(addr string) (*net.UnixAddr, error) {
	a, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return nil, err
	}
	host := a.IP.String()
	if len(a.IP) == 0 || a.IP.IsUnspecified() {
		host = "*"
	}
	return &net.UnixAddr{Net: "unix", Name: "@holocast-relay/" + net.JoinHostPort(host, strconv.Itoa(a.Port))}, nil
}

// Listen opens the socket for the process that serves a UDP address.
func Listen(addr string) (*Control, error) {
	name, err := controlName(addr)
	if err != nil {
		return nil, err
	}
	ln, err := net.ListenUnix("unix", name)
	if err != nil {
		return nil, err
	}
	return &Control{ln}, nil
}

// Inherited returns the predecessor's socket.
func Inherited(ln net.Listener) *Control { return &Control{ln.(*net.UnixListener)} }

// File returns the socket as a file to pass to another process.
func (c *Control) File() (*os.File, error) {
	if c == nil {
		return nil, nil
	}
	return c.ln.File()
}

// Close ends Serve. Methods of a nil Control do nothing.
func (c *Control) Close() {
	if c != nil {
		_ = c.ln.Close()
	}
}

// Serve calls upgrade for each request in turn, until Close. It answers with the process ID that
// upgrade returns, or with its error.
func (c *Control) Serve(upgrade func() (pid int, err error)) {
	for c != nil {
		conn, err := c.ln.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		answer := "error not permitted"
		if permitted(conn) {
			if pid, err := upgrade(); err != nil {
				answer = "error " + err.Error()
			} else {
				answer = "pid " + strconv.Itoa(pid)
			}
		}
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = fmt.Fprintln(conn, answer)
		_ = conn.Close()
	}
}

// permitted reports whether the peer runs as root or as our own user.
func permitted(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	var cred *unix.Ucred
	e := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return e == nil && err == nil && (cred.Uid == 0 || int(cred.Uid) == os.Geteuid())
}

// Ask requests an upgrade of the process that serves a UDP address and returns the new process's
// ID. It waits for the answer at most limit.
func Ask(addr string, limit time.Duration) (pid int, err error) {
	name, err := controlName(addr)
	if err != nil {
		return 0, err
	}
	conn, err := net.DialUnix("unix", nil, name)
	if err != nil {
		return 0, fmt.Errorf("no relay is running here at %s", addr)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetReadDeadline(time.Now().Add(limit))
	in := bufio.NewScanner(conn)
	if !in.Scan() {
		return 0, fmt.Errorf("the relay at %s does not answer: %w", addr,
			errors.Join(in.Err(), errors.New("see its log")))
	}
	if reason, failed := strings.CutPrefix(in.Text(), "error "); failed {
		return 0, errors.New(reason)
	}
	return strconv.Atoi(strings.TrimPrefix(in.Text(), "pid "))
}
