//go:build linux

// Package namespace creates the network namespaces of a lab and removes them even if the program
// crashes.
//
// The namespaces are mounted in /run/netns, where ip netns finds them, under names that identify
// the creating process. A shell, the reaper, waits on a pipe for that process to end and then
// removes its namespaces; Clean removes the namespaces of labs whose reaper was killed as well.
package namespace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// folder is the directory of ip netns.
const folder = "/run/netns"

// Supported returns an error that names the missing capabilities or kernel features, or nil.
func Supported() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&header, &have[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	var missing []string
	for _, c := range []struct {
		name string
		bit  int
	}{{"CAP_NET_ADMIN", unix.CAP_NET_ADMIN}, {"CAP_NET_RAW", unix.CAP_NET_RAW}, {"CAP_SYS_ADMIN", unix.CAP_SYS_ADMIN}} {
		if have[c.bit/32].Effective&(1<<(c.bit%32)) == 0 {
			missing = append(missing, c.name)
		}
	}
	if missing != nil {
		return fmt.Errorf("network lab needs %s: run it as root", strings.Join(missing, ", "))
	}
	if _, err := os.Stat("/proc/self/ns/net"); err != nil {
		return errors.New("network lab needs network namespaces: this kernel has none (CONFIG_NET_NS)")
	}
	return nil
}

// A Namespace is a network namespace and a thread in it.
type Namespace struct {
	Name   string // file name in /run/netns
	Handle *netlink.Handle
	fd     netns.NsHandle
	calls  chan func()
	done   chan struct{}
}

// newNamespace creates a namespace with its loopback device up.
func newNamespace(name string) (*Namespace, error) {
	n := &Namespace{Name: name, fd: netns.None(), calls: make(chan func()), done: make(chan struct{})}
	ready := make(chan error)
	go n.serve(ready)
	if err := <-ready; err != nil {
		<-n.done
		_ = remove(name) // it may exist in part
		return nil, fmt.Errorf("namespace %s: %w", name, err)
	}
	var err error
	if n.Handle, err = netlink.NewHandleAt(n.fd, unix.NETLINK_ROUTE); err != nil {
		return nil, errors.Join(fmt.Errorf("namespace %s: %w", name, err), n.close())
	}
	lo, err := n.Handle.LinkByName("lo")
	if err == nil {
		err = n.Handle.LinkSetUp(lo)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("namespace %s: loopback: %w", name, err), n.close())
	}
	return n, nil
}

// serve runs the namespace's thread: it creates the namespace and then runs the calls of Do.
func (n *Namespace) serve(ready chan<- error) {
	defer close(n.done)
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		ready <- err
		return
	}
	defer func() { _ = home.Close() }()
	if err = share(); err == nil {
		n.fd, err = netns.NewNamed(n.Name)
	}
	ready <- err
	if err == nil {
		for call := range n.calls {
			call()
		}
	}
	// If the thread cannot return to its original namespace, it stays locked and ends here.
	if netns.Set(home) == nil {
		runtime.UnlockOSThread()
	}
}

// Do calls f on the namespace's thread. Sockets and commands that f opens or starts stay in the
// namespace. Calls do not overlap, and f must not call Do.
func (n *Namespace) Do(f func() error) error {
	result := make(chan error, 1)
	n.calls <- func() { result <- f() }
	return <-result
}

// Set writes a setting under /proc/sys in the namespace, such as net/ipv4/ip_forward.
func (n *Namespace) Set(name, value string) error {
	return n.Do(func() error {
		return os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0)
	})
}

// FD returns the namespace's file descriptor for netlink.
func (n *Namespace) FD() netlink.NsFd { return netlink.NsFd(n.fd) }

// close kills the processes in the namespace and removes it.
func (n *Namespace) close() error {
	if n.Handle != nil {
		n.Handle.Close()
	}
	killInside(n.Name)
	close(n.calls)
	<-n.done
	return errors.Join(n.fd.Close(), remove(n.Name))
}

// remove unmounts a namespace and deletes its file.
func remove(name string) error {
	err := unlink(name)
	if errors.Is(err, unix.EBUSY) { // something is mounted over folder and hides the mount
		if err := uncover(); err != nil {
			return fmt.Errorf("namespace %s: %w", name, err)
		}
		err = unlink(name)
	}
	return err
}

func unlink(name string) error {
	path := filepath.Join(folder, name)
	// EINVAL: nothing is mounted there.
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("namespace %s: unmount: %w", name, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("namespace: %w", err)
	}
	return nil
}

// killInside kills every process in a namespace. It spares the caller, and does nothing if the
// namespace is the caller's own.
func killInside(name string) {
	var want, own, have unix.Stat_t
	if unix.Stat(filepath.Join(folder, name), &want) != nil || unix.Stat("/proc/self/ns/net", &own) != nil {
		return
	}
	if want.Dev == own.Dev && want.Ino == own.Ino {
		return
	}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		if unix.Stat(process+"/ns/net", &have) != nil || have.Dev != want.Dev || have.Ino != want.Ino {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(process, "/proc/%d", &pid); err == nil && pid != os.Getpid() {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended already
		}
	}
}
