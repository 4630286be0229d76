//go:build linux

package duplication

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"holocast/internal/netlab"
	"holocast/internal/pause"
	"holocast/internal/qoe"
	"holocast/netfunc/api"
	"holocast/netfunc/pathset"
	"holocast/netfunc/signal"
)

// pair is an edge pair and its controller.
type pair struct {
	s           *session
	name        string // prefix of the edges' names, which are unique on the machine
	mode        api.Mode
	watched     watched
	printed     bool   // elimination as printed in the paper
	address     string // controller's host:port
	token       string
	source      netip.Addr // the relay
	destination netip.Addr // the viewer

	near, far, controller *process
	rewards               []Rewards
}

const controllerPort = 4780

// watched selects the packets from the viewer that the controller evaluates, and how. The defaults
// ("") suit our session's receipts.
type watched struct {
	controller string // lines of YAML
	lengths    string // packet lengths, as YAML added to the edge's setting uplink
}

// watched returns the packets to evaluate. LiveScan3D's viewers send requests, to which the paper's
// rule applies. Requests are one-byte segments, so their size distinguishes them from
// acknowledgements.
func (m *media) watched() watched {
	if m.app.requests() {
		const request = 20 + 32 + 1 // IPv4, TCP with time stamps
		return watched{"trigger: {rule: paper}\nrearm: 5s\n", fmt.Sprintf(", min: %d, max: %d", request, request)}
	}
	return watched{}
}

// pairs numbers this process's pairs.
var pairs atomic.Int64

// startPair starts the controller and both edges and waits until they are connected and every path
// is up.
func (s *session) startPair(ctx context.Context, mode api.Mode, w watched, printed bool) error {
	p := &pair{
		s: s, mode: mode, watched: w, printed: printed, name: fmt.Sprintf("bench-%d-%d", os.Getpid(), pairs.Add(1)),
		address: net.JoinHostPort(s.lab.Node(management).Addr.String(), fmt.Sprint(controllerPort)),
		source:  s.lab.Node(source).Addr, destination: s.lab.Node(viewer).Addr, token: hex.EncodeToString(random(16)),
	}
	s.pair = p
	err := errors.Join(
		os.WriteFile(p.file("key"), []byte(hex.EncodeToString(signal.GenerateKey())), 0o600),
		os.WriteFile(p.file("token"), []byte(p.token), 0o600),
	)
	if err != nil {
		return err
	}
	if err := p.startController(); err != nil {
		return err
	}
	if err := p.startEdge(near); err != nil {
		return err
	}
	if err := p.startEdge(far); err != nil {
		return err
	}
	return p.await(ctx)
}

// back duplicates traffic to the relay over the given paths.
func (p *pair) back(ctx context.Context, over pathset.Set) error { return p.set(ctx, p.source, over) }

// set duplicates traffic to a destination over the given paths, as an operator would.
func (p *pair) set(ctx context.Context, destination netip.Addr, over pathset.Set) error {
	var f api.Flow
	return p.ask(ctx, http.MethodPut, "/v1/flows/"+destination.String(), api.Setting{Mode: api.Duplicate, Paths: over},
		&f)
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails (crypto/rand)
	return b
}

func (p *pair) file(name string) string { return filepath.Join(p.s.dir, name) }

// pins is the edges' folder of pinned BPF objects.
const pins = "/sys/fs/bpf/holocast"

func (p *pair) pin(edge string) string { return filepath.Join(pins, p.name+"-"+edge) }

// sweep removes kernel objects that killed benchmarks left behind.
func sweep() error {
	left, err := filepath.Glob(filepath.Join(pins, "bench-*"))
	if err != nil {
		return err
	}
	for _, pin := range left {
		var pid, n int
		if _, err := fmt.Sscanf(filepath.Base(pin), "bench-%d-%d", &pid, &n); err != nil {
			continue
		}
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); errors.Is(err, os.ErrNotExist) {
			if err := os.RemoveAll(pin); err != nil {
				return err
			}
		}
	}
	return nil
}

// startController starts the controller, which resumes from its state file if there is one.
func (p *pair) startController() (err error) {
	config := fmt.Sprintf(controllerConfig, controllerPort, p.file("token"), p.file("key"), p.file("state.json"),
		p.mode, p.watched.controller)
	if err := os.WriteFile(p.file("controller.yaml"), []byte(config), 0o644); err != nil {
		return err
	}
	p.controller, err = p.s.start(management, "controller", "run", "--config", p.file("controller.yaml"))
	return err
}

// startEdge starts an edge, which takes over pinned objects.
func (p *pair) startEdge(edge string) error {
	config := fmt.Sprintf(edgeConfig, p.name+"-"+edge, p.pin(edge), p.file(edge+".sock"), p.address, p.file("token"),
		p.file("key"))
	if edge == near {
		config += fmt.Sprintf(bothWays, source, p.destination, p.source)
	} else {
		config += fmt.Sprintf(bothWays, viewer, p.source, p.destination) + fmt.Sprintf(monitor, viewer, p.watched.lengths)
		if p.printed {
			config += printedElimination
		}
	}
	config += "paths:\n"
	other := map[string]string{near: far, far: near}[edge]
	for i := range paths {
		peer, err := address(p.s.lab.Node(other), pathName(i+1))
		if err != nil {
			return err
		}
		config += fmt.Sprintf("  - {index: %d, interface: %s, peer: %v}\n", i+1, pathName(i+1), peer)
	}
	file := p.file(edge + ".yaml")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return err
	}
	x, err := p.s.start(edge, "edge", "run", "--config", file)
	if err != nil {
		return err
	}
	x.title = "edge " + edge
	if edge == near {
		p.near = x
	} else {
		p.far = x
	}
	return nil
}

// address returns the IPv4 address of a node's device.
func address(node *netlab.Node, device string) (netip.Addr, error) {
	handle := node.Namespace.Handle
	link, err := handle.LinkByName(device)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%s in %s: %w", device, node.Name, err)
	}
	list, err := handle.AddrList(link, 2 /* AF_INET */)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("addresses of %s in %s: %w", device, node.Name, err)
	}
	if len(list) == 0 {
		return netip.Addr{}, fmt.Errorf("%s in %s has no IPv4 address", device, node.Name)
	}
	a, _ := netip.AddrFromSlice(list[0].IP)
	return a.Unmap(), nil
}

// edgeStatus is the part of an edge's status used here.
type edgeStatus struct {
	Running bool `json:"running"`
	Paths   []struct {
		Up bool `json:"up"`
	} `json:"paths"`
	Sender *struct {
		Policies []struct {
			Destination netip.Addr  `json:"destination"`
			Paths       pathset.Set `json:"paths"`
		} `json:"policies"`
	} `json:"sender"`
	Receiver *struct {
		RingFull uint64 `json:"ring_full"`
		Flows    []struct {
			Destination netip.Addr `json:"destination"`
			Elimination *struct {
				Window  int          `json:"window"`
				Paths   pathset.Set  `json:"paths"`
				Rewards []api.Reward `json:"rewards"`
			} `json:"elimination"`
		} `json:"flows"`
	} `json:"receiver"`
	Controller *struct {
		Connected bool `json:"connected"`
	} `json:"controller"`
}

// status queries an edge.
func (p *pair) status(ctx context.Context, edge string) (s edgeStatus, err error) {
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", p.file(edge+".sock"))
		},
	}}
	return s, fetch(ctx, client, http.MethodGet, "http://edge/status", "", nil, &s)
}

// ask calls the controller's API from the controller's own host.
func (p *pair) ask(ctx context.Context, method, path string, in, out any) error {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			err = p.s.lab.Node(management).Namespace.Do(func() error {
				conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
				return err
			})
			return conn, err
		},
	}}
	return fetch(ctx, client, method, "http://"+p.address+path, p.token, in, out)
}

func fetch(ctx context.Context, client *http.Client, method, url, token string, in, out any) error {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, url, &body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s", method, url, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

const readyLimit = time.Minute

// await waits until both edges are connected to the controller and every path is up.
func (p *pair) await(ctx context.Context) error {
	deadline := time.Now().Add(readyLimit)
	for {
		why := ""
		for _, edge := range []string{near, far} {
			s, err := p.status(ctx, edge)
			switch {
			case err != nil:
				why = err.Error()
			case s.Controller == nil || !s.Controller.Connected:
				why = edge + " does not talk to the controller"
			}
			for i, path := range s.Paths {
				if !path.Up {
					why = fmt.Sprintf("%s: path %d is down", edge, i+1)
				}
			}
		}
		if why == "" {
			return nil
		}
		if err := p.s.group.check(); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the pair was not ready within %v: %s", readyLimit, why)
		}
		if err := pause.For(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// sample records the current rewards of the paths.
func (p *pair) sample(ctx context.Context, at time.Duration) {
	s, err := p.status(ctx, far)
	if err != nil || s.Receiver == nil {
		return
	}
	for _, f := range s.Receiver.Flows {
		e := f.Elimination
		if f.Destination != p.destination || e == nil || e.Window == 0 {
			continue
		}
		r := Rewards{T: qoe.Round(at.Seconds(), 2), Window: e.Window, Reward: map[int]int{}}
		for _, x := range e.Rewards {
			r.Reward[x.Path] = x.Reward
		}
		p.rewards = append(p.rewards, r)
	}
}

// history returns the controller's decisions about the flow to the viewer, and the recorded
// rewards.
func (p *pair) history(ctx context.Context, begun time.Time) ([]Decision, []Rewards, error) {
	var list api.DecisionList
	if err := p.ask(ctx, http.MethodGet, "/v1/decisions?since=0", nil, &list); err != nil {
		return nil, nil, err
	}
	var out []Decision
	for _, d := range list.Decisions {
		if d.Destination != p.destination && !slices.Contains(d.Others, p.destination) {
			continue
		}
		out = append(out, Decision{
			T: qoe.Round(d.Time.Sub(begun).Seconds(), 3), Kind: d.Kind, Paths: d.To.Indices(),
			Reason: strings.TrimSuffix(d.Reason, "."),
		})
	}
	return out, p.rewards, nil
}

// clean removes the pinned BPF objects of killed edges.
func (p *pair) clean() error {
	return errors.Join(os.RemoveAll(p.pin(near)), os.RemoveAll(p.pin(far)))
}
