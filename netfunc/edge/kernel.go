//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"holocast/netfunc/bpf"
	"holocast/netfunc/signal"
)

// kernel holds the edge's kernel programs. They outlive the process, and the next run takes them
// over.
type kernel struct {
	cfg *Config
	key []byte
	log *slog.Logger
	due chan struct{} // an interface may have returned

	mu       sync.RWMutex
	sender   *bpf.Sender       // nil if nothing is duplicated or monitored here
	receiver *bpf.Receiver     // nil if the edge does not receive
	attached map[string]device // interfaces with programs attached
	towards  string            // interface towards the controller; "" if unknown
}

// device identifies an interface. It changes if the interface was created again or has a new Ethernet
// address.
type device struct {
	index   int
	address string
}

// needs returns the interfaces that need programs.
func (k *kernel) needs() (attach []bpf.Attach, receive []string) {
	add := func(name string, d bpf.Direction) {
		// A program that duplicates at ingress also handles signalling packets.
		if a := (bpf.Attach{Interface: name, Direction: d}); !slices.Contains(attach, a) {
			attach = append(attach, a)
		}
	}
	if k.cfg.Role.Sends() {
		for _, a := range k.cfg.Sender.Attach {
			add(a.Interface, directions[a.Direction])
		}
		for _, name := range k.signalling() {
			add(name, bpf.Monitor)
		}
	}
	for _, name := range k.cfg.Uplink.Interfaces {
		add(name, bpf.Monitor)
	}
	if k.cfg.Role.Receives() {
		receive = k.cfg.Receiver.Interfaces
	}
	return attach, receive
}

// signalling returns the configured interfaces for signalling packets or, by default, the interface
// towards the controller unless a program that duplicates at ingress handles its packets.
func (k *kernel) signalling() []string {
	if len(k.cfg.Signal.Interfaces) > 0 {
		return k.cfg.Signal.Interfaces
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.towards == "" || slices.ContainsFunc(k.cfg.Sender.Attach, func(a Attach) bool {
		return a.Interface == k.towards && directions[a.Direction] == bpf.Ingress
	}) {
		return nil
	}
	return []string{k.towards}
}

// setTowards sets the interface towards the controller.
func (k *kernel) setTowards(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.towards != name {
		k.towards = name
		k.look()
	}
}

// present returns the interfaces from needs that exist, and their identities. If the interface of a
// path is missing, that path is down and the others keep working. Other interfaces must exist.
func (k *kernel) present() (attach []bpf.Attach, receive []string, devices map[string]device, err error) {
	allAttach, allReceive := k.needs()
	devices = map[string]device{}
	exists := func(name string) bool {
		i, e := net.InterfaceByName(name)
		if e == nil {
			devices[name] = device{i.Index, i.HardwareAddr.String()}
			return true
		}
		if !slices.ContainsFunc(k.cfg.Paths, func(p Path) bool { return p.Interface == name }) {
			err = fmt.Errorf("%s: interface %s does not exist", k.setting(name), name)
		}
		return false
	}
	for _, a := range allAttach {
		if exists(a.Interface) {
			attach = append(attach, a)
		}
	}
	for _, name := range allReceive {
		if exists(name) {
			receive = append(receive, name)
		}
	}
	switch {
	case err != nil:
	case len(allAttach) > 0 && len(attach) == 0:
		var names []string
		for _, a := range allAttach {
			if !slices.Contains(names, a.Interface) {
				names = append(names, a.Interface)
			}
		}
		err = fmt.Errorf("%s: none of these interfaces exists: %s", k.setting(names[0]), strings.Join(names, ", "))
	case len(allReceive) > 0 && len(receive) == 0:
		err = fmt.Errorf("%s: no interface for replicas exists: %s", k.setting(allReceive[0]),
			strings.Join(allReceive, ", "))
	}
	return attach, receive, devices, err
}

// setting returns the setting that first names an interface.
func (k *kernel) setting(name string) string {
	for i, p := range k.cfg.Paths {
		if p.Interface == name {
			return fmt.Sprintf("paths[%d].interface", i)
		}
	}
	for i, a := range k.cfg.Sender.Attach {
		if a.Interface == name {
			return fmt.Sprintf("sender.attach[%d].interface", i)
		}
	}
	for _, l := range []struct {
		setting string
		names   []string
	}{{"signal.interfaces", k.cfg.Signal.Interfaces}, {
		"uplink.interfaces",
		k.cfg.Uplink.Interfaces,
	}, {"receiver.interfaces", k.cfg.Receiver.Interfaces}} {
		if i := slices.Index(l.names, name); i >= 0 {
			return fmt.Sprintf("%s[%d]", l.setting, i)
		}
	}
	return "controller.url" // the interface towards the controller
}

// located prefixes an error with its configuration section. Errors about pins already name their
// setting.
func located(section string, err error) error {
	if errors.Is(err, bpf.ErrPin) {
		return err
	}
	return fmt.Errorf("%s: %w", section, err)
}

// open attaches the programs, or takes over programs that are attached.
func (k *kernel) open() error {
	attach, receive, devices, err := k.present()
	if err != nil {
		return err
	}
	var sender *bpf.Sender
	var receiver *bpf.Receiver
	// The receiver comes first, since packets must never be duplicated without elimination.
	if len(receive) > 0 {
		receiver, err = bpf.OpenReceiver(bpf.ReceiverOptions{
			Pin: k.cfg.Pin, Interfaces: receive, Stale: k.cfg.Receiver.Stale, TableSize: k.cfg.Receiver.TableSize,
		})
		if err != nil {
			return located("receiver", err)
		}
	}
	if len(attach) > 0 {
		sender, err = bpf.OpenSender(bpf.SenderOptions{
			Pin: k.cfg.Pin, Attach: attach, SignalKey: k.signalKey(), SignalPort: k.cfg.Signal.Port,
			UplinkMin: k.cfg.Uplink.Min, UplinkMax: k.cfg.Uplink.Max,
			MaxPolicies: k.cfg.Sender.MaxPolicies, FlowLabel: k.cfg.Sender.FlowLabel, Clsact: k.cfg.Sender.Clsact,
		})
		if err != nil {
			if receiver != nil {
				_ = receiver.Close()
			}
			return located("sender", err)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sender, k.receiver, k.attached = sender, receiver, devices
	return nil
}

// signalKey returns this edge's signalling key, or nil if it has none.
func (k *kernel) signalKey() []byte {
	if k.key == nil {
		return nil
	}
	return signal.EdgeKey(k.key, k.cfg.Name)
}

// close closes the readers and leaves everything running.
func (k *kernel) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.sender != nil {
		_ = k.sender.Close()
	}
	if k.receiver != nil {
		_ = k.receiver.Close()
	}
	k.sender, k.receiver = nil, nil
}

// detach removes everything from the kernel.
func (k *kernel) detach() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	if k.sender != nil {
		errs = append(errs, k.sender.Detach())
	}
	if k.receiver != nil {
		errs = append(errs, k.receiver.Detach())
	}
	k.sender, k.receiver = nil, nil
	return errors.Join(errs...)
}

// returned reports whether an existing interface lacks its programs because it was missing or was
// created again. A new Ethernet address indicates a new interface.
func (k *kernel) returned() bool {
	_, _, devices, err := k.present()
	if err != nil {
		return false
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	for name, is := range devices {
		if k.attached[name] != is {
			return true
		}
	}
	return false
}

// look makes watch check the interfaces immediately.
func (k *kernel) look() {
	select {
	case k.due <- struct{}{}:
	default:
	}
}

// watch attaches programs to interfaces that appear, and calls opened each time, until ctx is done.
func (k *kernel) watch(ctx context.Context, opened func()) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-k.due:
		}
		if !k.returned() {
			continue
		}
		k.close()
		if err := k.open(); err != nil {
			k.log.Warn("cannot attach to an added interface, retrying", "err", err)
			continue
		}
		k.log.Info("attached programs to an added interface")
		opened()
	}
}

// withSender calls do if there is a sender.
func (k *kernel) withSender(do func(*bpf.Sender) error) error {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.sender == nil {
		return nil
	}
	return do(k.sender)
}

// withReceiver calls do if there is a receiver.
func (k *kernel) withReceiver(do func(*bpf.Receiver) error) error {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.receiver == nil {
		return nil
	}
	return do(k.receiver)
}

// setPath passes a path to the sender.
func (k *kernel) setPath(p bpf.Path) {
	if !k.cfg.Role.Sends() {
		return
	}
	if err := k.withSender(func(s *bpf.Sender) error { return s.SetPath(p) }); err != nil {
		k.log.Error("cannot set path", "path", p.Index, "err", err)
	}
}

// follow calls read repeatedly with the handle from now(), until ctx is done. The handle may be
// closed and reopened in between.
func follow[H comparable](ctx context.Context, now func() H, read func(H) error) {
	var none H
	for ctx.Err() == nil {
		if h := now(); h == none || read(h) != nil {
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
}

func (k *kernel) currentSender() *bpf.Sender {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.sender
}

func (k *kernel) currentReceiver() *bpf.Receiver {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.receiver
}
