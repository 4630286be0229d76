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
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Control accepts commands on an abstract Unix socket named after the process's UDP
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

// commandWait limits the wait for a command. Earlier versions of the program send none to upgrade.
const commandWait = time.Second

// Serve calls handle for each command, until Close, and sends its answer or error. A connection with
// the command API is passed to web instead, which closes it; peer names its user for a log.
func (c *Control) Serve(handle func(command string) (answer string, err error), web func(conn net.Conn, peer string)) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for c != nil {
		conn, err := c.ln.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		wg.Go(func() { serve(conn, handle, web) })
	}
}

func serve(conn *net.UnixConn, handle func(string) (string, error), web func(net.Conn, string)) {
	answer := "error not permitted"
	if user, ok := permitted(conn); ok {
		command := Upgrade
		_ = conn.SetReadDeadline(time.Now().Add(commandWait))
		if line, err := bufio.NewReaderSize(conn, 64).ReadString('\n'); err == nil {
			command = strings.TrimSpace(line)
		}
		if command == API {
			_ = conn.SetDeadline(time.Time{})
			_, _ = fmt.Fprintln(conn, "ok")
			web(conn, "user "+strconv.FormatUint(uint64(user), 10))
			return
		}
		if text, err := handle(command); err != nil {
			answer = "error " + err.Error()
		} else {
			answer = text
		}
	}
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = fmt.Fprintln(conn, answer)
	_ = conn.Close()
}

// permitted returns the peer's user and whether that is root or our own.
func permitted(conn *net.UnixConn) (user uint32, ok bool) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, false
	}
	var cred *unix.Ucred
	e := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if e != nil || err != nil {
		return 0, false
	}
	return cred.Uid, cred.Uid == 0 || int(cred.Uid) == os.Geteuid()
}

// Ask sends a command to the process that serves a UDP address and returns its answer, for which it waits
// at most limit.
func Ask(addr, command string, limit time.Duration) (answer string, err error) {
	conn, answer, err := ask(addr, command, limit)
	if err == nil {
		_ = conn.Close()
	}
	return answer, err
}

// Dial returns an HTTP connection to the API of the process that serves a UDP address.
func Dial(addr string) (net.Conn, error) {
	conn, _, err := ask(addr, API, dialWait)
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	return conn, err
}

// dialWait limits the wait for the answer of Dial.
const dialWait = 5 * time.Second

func ask(addr, command string, limit time.Duration) (conn net.Conn, answer string, err error) {
	name, err := controlName(addr)
	if err != nil {
		return nil, "", err
	}
	conn, err = net.DialUnix("unix", nil, name)
	if err != nil {
		return nil, "", fmt.Errorf("no relay is running here at %s", addr)
	}
	_ = conn.SetDeadline(time.Now().Add(limit))
	_, _ = fmt.Fprintln(conn, command)
	in := bufio.NewScanner(conn)
	if !in.Scan() {
		_ = conn.Close()
		return nil, "", fmt.Errorf("the relay at %s does not answer: %w", addr,
			errors.Join(in.Err(), errors.New("see its log")))
	}
	if reason, failed := strings.CutPrefix(in.Text(), "error "); failed {
		_ = conn.Close()
		return nil, "", errors.New(reason)
	}
	return conn, in.Text(), nil
}
