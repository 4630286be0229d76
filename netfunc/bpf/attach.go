package bpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// target is an attachment point of a program.
type target struct {
	Direction Direction
	Interface int
	name      string // interface name
}

// String returns the name of the link's pin. Interface names may contain dots, which a bpf file
// system does not allow.
func (t target) String() string { return fmt.Sprintf("link-%s-%d", t.Direction, t.Interface) }

// errGone means that the interface of a pinned link was deleted.
var errGone = errors.New("the interface of the pinned link was deleted")

// takeOver atomically replaces the program of a pinned link. If the link's interface was deleted,
// it removes the pin and returns errGone; if there is no pin, it returns os.ErrNotExist.
func takeOver(pin string, program *ebpf.Program, ifindex int) error {
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	at, err := interfaceOf(l)
	if err == nil && at == ifindex {
		if err = l.Update(program); err == nil {
			return nil
		}
	}
	if err != nil && !errors.Is(err, unix.ENOLINK) && !errors.Is(err, unix.ENODEV) {
		return err
	}
	if err := l.Unpin(); err != nil {
		return err
	}
	return errGone
}

// interfaceOf returns the index of a link's interface, or 0 if the interface was deleted.
func interfaceOf(l link.Link) (int, error) {
	info, err := l.Info()
	if err != nil {
		return 0, err
	}
	if x := info.XDP(); x != nil {
		return int(x.Ifindex), nil
	}
	if x := info.TCX(); x != nil {
		return int(x.Ifindex), nil
	}
	return 0, fmt.Errorf("pinned link is neither XDP nor TCX but %v", info.Type)
}

// pinLink pins a link and closes it, or detaches it on failure.
func pinLink(l link.Link, pin string) error {
	defer func() { _ = l.Close() }()
	return l.Pin(pin)
}

// detachExcept detaches the links pinned in dir, except those in keep.
func detachExcept(dir string, keep map[string]bool) error {
	pins, err := filepath.Glob(filepath.Join(dir, "link-*"))
	if err != nil {
		return err
	}
	for _, pin := range pins {
		if keep[filepath.Base(pin)] {
			continue
		}
		l, err := link.LoadPinnedLink(pin, nil)
		if err != nil {
			return err
		}
		// Detach explicitly, as other processes may hold the link open.
		err = l.Detach()
		_ = l.Close()
		if err != nil && !errors.Is(err, unix.ENOLINK) {
			return fmt.Errorf("detach %s: %w", strings.TrimPrefix(filepath.Base(pin), "link-"), err)
		}
		if err := os.Remove(pin); err != nil {
			return err
		}
	}
	return nil
}
