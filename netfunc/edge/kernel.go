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

// kernel is what the edge has in the kernel. It outlives the edge; the edge takes it over.
type kernel struct {
	cfg *Config
	key []byte
	log *slog.Logger
	due chan struct{} // an interface may have come back

	mu       sync.RWMutex
	sender   *bpf.Sender       // nil when nothing is duplicated or monitored here
	receiver *bpf.Receiver     // nil when the edge does not receive
	attached map[string]device // the interfaces that programs are on
	towards  string            // interface that the controller is reached by; "" when it is not known
}

// device tells an interface from another of the same name, and notices a new address.
type device struct {
	index   int
	address string
}

// needs are the interfaces that programs belong on.
func (k *kernel) needs() (attach []bpf.Attach, receive []string) {
	add := func(name string, d bpf.Direction) {
		// A program that duplicates what comes in takes signalling packets as well.
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

// signalling are the interfaces that signalling packets come in by, but for those whose packets
// are duplicated: the configured ones, or the one towards the controller.
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

// setTowards sets the interface by which the controller is reached.
func (k *kernel) setTowards(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.towards != name {
		k.towards = name
		k.look()
	}
}

// present returns the interfaces of needs that there are, and which they are. An interface
// of a path may be missing: the path is down then, and the others are not.
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
		err = fmt.Errorf("%s: none of the interfaces to attach to exists: %s", k.setting(allAttach[0].Interface), allAttach[0].Interface)
	case len(allReceive) > 0 && len(receive) == 0:
		err = fmt.Errorf("%s: none of the interfaces that replicas come in by exists: %s", k.setting(allReceive[0]), strings.Join(allReceive, ", "))
	}
	return attach, receive, devices, err
}

// setting is where the configuration has an interface first.
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
	}{{"signal.interfaces", k.cfg.Signal.Interfaces}, {"uplink.interfaces", k.cfg.Uplink.Interfaces}, {"receiver.interfaces", k.cfg.Receiver.Interfaces}} {
		if i := slices.Index(l.names, name); i >= 0 {
			return fmt.Sprintf("%s[%d]", l.setting, i)
		}
	}
	return "controller.url" // the interface by which it is reached
}

// located puts the section of a configuration before an error about it; one of a pin names its setting.
func located(section string, err error) error {
	if errors.Is(err, bpf.ErrPin) {
		return err
	}
	return fmt.Errorf("%s: %w", section, err)
}

// open attaches, or takes over what is attached.
func (k *kernel) open() error {
	attach, receive, devices, err := k.present()
	if err != nil {
		return err
	}
	var sender *bpf.Sender
	var receiver *bpf.Receiver
	// The receiver first: never duplicate what nobody eliminates.
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

// signalKey is the key of signalling packets for this edge; nil without one.
func (k *kernel) signalKey() []byte {
	if k.key == nil {
		return nil
	}
	return signal.EdgeKey(k.key, k.cfg.Name)
}

// close ends the readers and leaves everything running.
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

// returned reports whether an interface exists that should have programs but has none: it was
// missing, or was created again. A new Ethernet address makes it a new interface.
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

// look has watch look for interfaces at once.
func (k *kernel) look() {
	select {
	case k.due <- struct{}{}:
	default:
	}
}

// watch attaches to interfaces that appear, until ctx ends; opened is called each time.
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
			k.log.Warn("an interface was added, but attaching failed; trying again", "err", err)
			continue
		}
		k.log.Info("attached again: an interface was added")
		opened()
	}
}

// withSender calls do unless there is no sender now.
func (k *kernel) withSender(do func(*bpf.Sender) error) error {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.sender == nil {
		return nil
	}
	return do(k.sender)
}

// withReceiver calls do unless there is no receiver now.
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
		k.log.Error("path not set", "path", p.Index, "err", err)
	}
}

// follow calls read, which waits in what now returns, until ctx ends. What is open now may be
// closed and opened again meanwhile.
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
