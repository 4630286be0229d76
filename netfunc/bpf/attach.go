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

// target is a place that a program sits at.
type target struct {
	Direction Direction
	Interface int
	name      string // of the interface
}

// String names the pin of a link: interface names may have dots, which a bpf file
// system does not allow.
func (t target) String() string { return fmt.Sprintf("link-%s-%d", t.Direction, t.Interface) }

// errGone means that a pinned link belongs to a deleted interface.
var errGone = errors.New("pinned link is of an interface that is gone")

// takeOver replaces the program of a pinned link: between one packet and the next,
// so that none is missed. The error is errGone, the pin removed, when the link has
// lost its interface; os.ErrNotExist when there is none.
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

// interfaceOf is the index of the interface that a link is attached to; 0 if that
// interface is gone.
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

// pinLink pins a link and closes it; unpinned it is taken off.
func pinLink(l link.Link, pin string) error {
	defer func() { _ = l.Close() }()
	return l.Pin(pin)
}

// detachExcept takes off what is pinned in dir and not to be kept.
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
		// Other processes may hold the link open: taking it off does not wait for them.
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
