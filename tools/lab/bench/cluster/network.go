//go:build linux

package cluster

import (
	"bufio"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"holocast/internal/devcert"
	"holocast/internal/moqt"
	moqtwire "holocast/internal/moqt/wire"
	"holocast/internal/netlab"
	"holocast/internal/netlab/namespace"
	"holocast/internal/netlab/topology"
	"holocast/internal/netlab/wire"
	"holocast/internal/pause"
	"holocast/relay/auth"
	"holocast/tools/lab/bench/internal/direct"
	"holocast/tools/lab/bench/internal/load"
)

// Each site has a router (e), a relay and a host for clients (u). Paths ra, rb and rc are the relays'
// own.
const sitesYAML = `
name: cluster
hosts: [a, b, c, ua, ub, uc]
edges: [ea, eb, ec]
links:
  - {between: [ea, ua]}
  - {between: [eb, ub]}
  - {between: [ec, uc]}
paths:
  - {name: ra, between: [ea, a]}
  - {name: rb, between: [eb, b]}
  - {name: rc, between: [ec, c]}
  - {name: ab, between: [ea, eb], delay: %v}
  - {name: bc, between: [eb, ec], delay: %v}
`

// Ports of the relays.
const (
	mediaPort = "4443"
	busPort   = 6222
	adminPort = "9192"
)

// startLimit limits the wait until relays know each other and viewers receive frames. It only guards
// against hangs, so it suffices for one shared processor.
const startLimit = 2 * time.Minute

// niceness gives the benchmark's programs priority over the machine's other programs.
const niceness = -15

// network is a running cluster with its clients.
type network struct {
	relay  string                     // binary
	client []string                   // command
	backup bool                       // several publishers may claim a namespace
	dir    string                     // for secrets
	certs  map[string]tls.Certificate // of the relays, by site

	lab    *netlab.Lab
	relays map[string]*load.Relay  // by site
	http   map[string]*http.Client // by site
	pids   map[string]int          // by site, of processes that replaced the first one
	joined time.Duration           // from the start of the last relay until all know each other

	mu      sync.Mutex
	clients []*clientProcess
}

// start starts the relays of all sites and waits until they know each other.
func start(ctx context.Context, relay string, client []string, backup bool) (n *network, err error) {
	n = &network{
		relay: relay, client: client, backup: backup, relays: map[string]*load.Relay{}, http: map[string]*http.Client{},
		pids: map[string]int{}, certs: map[string]tls.Certificate{},
	}
	defer func() {
		if err != nil {
			_, closeErr := n.close()
			n, err = nil, errors.Join(err, closeErr)
		}
	}()
	t, err := topology.Parse(fmt.Appendf(nil, sitesYAML, delayAB, delayBC))
	if err != nil {
		return n, err
	}
	if n.lab, err = netlab.Start(t, netlab.Options{}); err != nil {
		return n, err
	}
	if err := n.lab.Begin(); err != nil {
		return n, err
	}
	if n.dir, err = os.MkdirTemp("", "holocast-cluster-*"); err != nil {
		return n, err
	}
	if err := n.writeSecrets(); err != nil {
		return n, err
	}
	for _, site := range sites() {
		n.http[site] = inside(n.lab.Node(site).Namespace)
		if err := n.startRelay(site); err != nil {
			return n, err
		}
	}
	began := time.Now()
	if err := n.awaitJoined(ctx); err != nil {
		return n, err
	}
	n.joined = time.Since(began)
	return n, nil
}

// awaitJoined waits until the relays know each other.
func (n *network) awaitJoined(ctx context.Context) error {
	for _, site := range sites() {
		what := "relay " + site + " knows the others"
		err := await(ctx, startLimit, what, func() bool {
			return n.metric(ctx, site, "holocast_relay_cluster_relays") == float64(len(sites())-1)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (n *network) file(name string) string { return filepath.Join(n.dir, name) }

// writeSecrets writes the cluster's secret and a certificate for each relay.
func (n *network) writeSecrets() error {
	key, err := auth.NewKey("HS256")
	if err != nil {
		return err
	}
	secret, err := auth.MarshalKey(key)
	if err != nil {
		return err
	}
	for _, site := range sites() {
		if n.certs[site], err = devcert.Generate(time.Now(), n.lab.Node(site).Addr.String()); err != nil {
			return err
		}
		if err := n.writeCertificate(site, n.certs[site]); err != nil {
			return err
		}
	}
	return os.WriteFile(n.file("cluster.key"), secret, 0o600)
}

// writeCertificate writes the certificate that a relay uses within about two seconds.
func (n *network) writeCertificate(site string, c tls.Certificate) error {
	chain, key, err := pemOf(c)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(n.file(site+".key"), key, 0o600), os.WriteFile(n.file(site+".pem"), chain, 0o600))
}

// expiring returns a relay's certificate with another end of its validity.
func (n *network) expiring(site string, end time.Time) (tls.Certificate, error) {
	c := n.certs[site]
	leaf, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		return c, err
	}
	leaf.NotAfter = end
	key, ok := c.PrivateKey.(crypto.Signer)
	if !ok {
		return c, errors.New("the certificate's key cannot sign")
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

func (n *network) addr(site, port string) string {
	return net.JoinHostPort(n.lab.Node(site).Addr.String(), port)
}

// startRelay starts the relay of a site, at the same address each time.
func (n *network) startRelay(site string) error {
	bus := strconv.Itoa(busPort)
	var others []string
	for _, other := range sites() {
		others = append(others, n.addr(other, bus))
	}
	args := load.Unlimited()
	for _, limit := range []string{"requests", "namespaces"} {
		for _, scope := range []string{"session", "address", "all"} {
			args = append(args, "--limits", limit+"."+scope+"=0")
		}
	}
	args = append(args, "--listen", n.addr(site, mediaPort), "--admin", n.addr(site, adminPort),
		"--tls-certificate", n.file(site+".pem"), "--tls-key", n.file(site+".key"),
		"--cluster", "bench", "--cluster-secret", n.file("cluster.key"), "--cluster-listen", n.addr(site, bus),
		"--cluster-join", strings.Join(others, ","),
		// Sessions leave an upgraded process soon, so that upgrades can follow each other.
		"--drain-timeout", "1s")
	if n.backup {
		args = append(args, "--backups")
	}
	node := n.lab.Node(site)
	r, err := load.StartAt(n.relay, node.Addr.String(), func(cmd *exec.Cmd) error { return startIn(node, cmd) }, args...)
	if err != nil {
		return fmt.Errorf("relay %s: %w", site, err)
	}
	n.relays[site] = r
	delete(n.pids, site)
	return nil
}

// startIn starts a command in a node with priority. It ends with this program.
func startIn(node *netlab.Node, cmd *exec.Cmd) error {
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
	err := node.Namespace.Do(func() error {
		// Niceness belongs to the thread, and children inherit it.
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, niceness); err != nil {
			return fmt.Errorf("set niceness %d: %w", niceness, err)
		}
		defer func() { _ = unix.Setpriority(unix.PRIO_PROCESS, 0, 0) }()
		return cmd.Start()
	})
	if err == nil {
		// With autogroup scheduling, niceness only matters within a session.
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", cmd.Process.Pid), []byte(strconv.Itoa(niceness)), 0)
	}
	return err
}

// inside returns an HTTP client that connects from a namespace.
func inside(from *namespace.Namespace) *http.Client {
	dial := func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = from.Do(func() error {
			c, err = new(net.Dialer).DialContext(ctx, network, address)
			return err
		})
		return c, err
	}
	return &http.Client{Transport: &http.Transport{DialContext: dial}, Timeout: 2 * time.Second}
}

// metric returns the sum of a relay's metric over its labels, or -1 if the relay does not respond.
func (n *network) metric(ctx context.Context, site, name string) (sum float64) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.addr(site, adminPort)+"/metrics", nil)
	if err != nil {
		return -1
	}
	resp, err := n.http[site].Do(req)
	if err != nil {
		return -1
	}
	defer func() { _ = resp.Body.Close() }()
	for scan := bufio.NewScanner(resp.Body); scan.Scan(); {
		series, value, _ := strings.Cut(scan.Text(), " ")
		if series, _, _ = strings.Cut(series, "{"); series != name {
			continue
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			sum += v
		}
	}
	return sum
}

// await polls ok until it is true.
func await(ctx context.Context, limit time.Duration, what string, ok func() bool) error {
	for end := time.Now().Add(limit); !ok(); {
		if time.Now().After(end) {
			return fmt.Errorf("%s: not within %v", what, limit)
		}
		if err := pause.For(ctx, poll); err != nil {
			return err
		}
	}
	return nil
}

// poll is the interval between looks at a condition.
const poll = 10 * time.Millisecond

// clientProcess is a client with its reports.
type clientProcess struct {
	cmd    *exec.Cmd
	orders io.WriteCloser
	relay  string // address of its own relay
	stderr strings.Builder
	done   chan struct{}

	mu    sync.Mutex
	sent  []sentFrame
	got   map[int][]arrival // by viewer
	wrong []int64           // times of frames of other sessions
	at    map[int]string    // address of the relay by viewer
	times map[string]int64  // other lines
}

// run starts a client at a site, connected to a relay.
func (n *network) run(ctx context.Context, site, relay string, c client) (*clientProcess, error) {
	hash := devcert.Hash(n.certs[relay])
	c.Relay, c.Hash = "moqt://"+n.addr(relay, mediaPort), hex.EncodeToString(hash[:])
	config, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	node := n.lab.Node("u" + site)
	args := append(slices.Clone(n.client[1:]), string(config))
	p := &clientProcess{
		cmd: node.Command(ctx, n.client[0], args...), relay: n.addr(relay, mediaPort), done: make(chan struct{}),
		got: map[int][]arrival{}, at: map[int]string{}, times: map[string]int64{},
	}
	p.cmd.Stderr = &p.stderr
	if p.orders, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := startIn(node, p.cmd); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.done)
		p.read(out)
		_ = p.cmd.Wait()
	}()
	n.mu.Lock()
	n.clients = append(n.clients, p)
	n.mu.Unlock()
	return p, nil
}

// read stores the client's reports.
func (p *clientProcess) read(out io.Reader) {
	for scan := bufio.NewScanner(out); scan.Scan(); {
		word, rest, _ := strings.Cut(scan.Text(), " ")
		var v [4]int64
		count, _ := fmt.Sscan(rest, &v[0], &v[1], &v[2], &v[3])
		p.mu.Lock()
		switch {
		case word == "sent" && count == 2:
			p.sent = append(p.sent, sentFrame{uint64(v[0]), v[1]})
		case word == "at" && count > 0:
			_, p.at[int(v[0])], _ = strings.Cut(rest, " ")
		case word == "wrong" && count == 3:
			p.wrong = append(p.wrong, v[2])
		case word == "frame" && count == 4:
			p.got[int(v[0])] = append(p.got[int(v[0])], arrival{uint64(v[1]), v[2], v[3]})
		case count > 0:
			p.times[word] = v[0]
		}
		p.mu.Unlock()
	}
}

// sentFrames returns the frames that the publisher has sent since a time.
func (p *clientProcess) sentFrames(from int64) (list []sentFrame) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.sent {
		if f.at >= from {
			list = append(list, f)
		}
	}
	return list
}

// arrivals returns a copy of a viewer's arrivals since a time.
func (p *clientProcess) arrivals(viewer int, from int64) (list []arrival) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.got[viewer] {
		if a.at >= from {
			list = append(list, a)
		}
	}
	return list
}

// has reports whether a viewer has a frame that was sent at or after a time.
func (p *clientProcess) has(viewer int, sent int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.got[viewer]
	for i := len(list) - 1; i >= 0 && i >= len(list)-FramesPerS; i-- {
		if list[i].sent >= sent {
			return true
		}
	}
	return false
}

// reported returns the time of a line, or 0.
func (p *clientProcess) reported(word string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.times[word]
}

// failure returns an error if the client has ended.
func (p *clientProcess) failure() error {
	select {
	case <-p.done:
		return fmt.Errorf("a client ended: %v: %s", p.cmd.ProcessState, p.stderr.String())
	default:
		return nil
	}
}

// place orders the client to connect anew to its own relay.
func (p *clientProcess) place() error {
	p.mu.Lock()
	clear(p.at)
	p.mu.Unlock()
	_, err := fmt.Fprintln(p.orders, placeOrder)
	return err
}

// away returns the number of its viewers, or 1 for a publisher, that are not at its own relay.
func (p *clientProcess) away(viewers int) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for viewer := range viewers {
		if p.at[viewer] != p.relay {
			n++
		}
	}
	return n
}

// wrongFrames returns the number of frames of other sessions since a time.
func (p *clientProcess) wrongFrames(from int64) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range p.wrong {
		if at >= from {
			n++
		}
	}
	return n
}

// forget drops what was reported before a time.
func (p *clientProcess) forget(before int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent = slices.DeleteFunc(p.sent, func(f sentFrame) bool { return f.at < before })
	for viewer, list := range p.got {
		p.got[viewer] = slices.DeleteFunc(list, func(a arrival) bool { return a.at < before })
	}
}

// leave ends the client's sessions and the client.
func (p *clientProcess) leave() {
	_ = p.orders.Close()
	select {
	case <-p.done:
	case <-time.After(leaveLimit):
		p.stop()
	}
}

func (p *clientProcess) stop() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// block makes the relays' kernels drop the packets of the cluster ports.
func (n *network) block(drop bool) error {
	port := &netlink.RulePortRange{Start: busPort, End: busPort}
	for _, site := range sites() {
		handle := n.lab.Node(site).Namespace.Handle
		for _, from := range []bool{true, false} {
			r := netlink.NewRule()
			r.Family, r.IPProto, r.Type = unix.AF_INET, unix.IPPROTO_TCP, unix.RTN_BLACKHOLE
			r.Priority = 100
			if from {
				r.Sport = port
			} else {
				r.Dport = port
				r.Priority++
			}
			change, verb := handle.RuleAdd, "block"
			if !drop {
				change, verb = handle.RuleDel, "unblock"
			}
			if err := change(r); err != nil {
				return fmt.Errorf("%s the cluster port of relay %s: %w", verb, site, err)
			}
		}
	}
	return nil
}

// signal sends a signal to a relay.
func (n *network) signal(site string, s unix.Signal) error { return unix.Kill(n.pid(site), s) }

// restart starts a relay that was killed.
func (n *network) restart(site string) error {
	if pid := n.pid(site); !ended(pid) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	n.relays[site].Stop()
	return n.startRelay(site)
}

// expire lets a relay's certificate expire while it is in use, and then has the relay upgraded, after
// which its clients must connect again.
func (n *network) expire(ctx context.Context, site string) error {
	end := time.Now().Add(certificateLeft)
	c, err := n.expiring(site, end)
	if err != nil {
		return err
	}
	if err := errors.Join(n.writeCertificate(site, c), pause.For(ctx, time.Until(end)+time.Second)); err != nil {
		return err
	}
	return n.upgrade(ctx, site)
}

// certificateLeft is the rest of the validity of an expiring certificate. The relay reads it meanwhile.
const certificateLeft = 3 * time.Second

// renewCertificate replaces a relay's expired certificate, and waits until it is in use.
func (n *network) renewCertificate(ctx context.Context, site string) error {
	if err := n.writeCertificate(site, n.certs[site]); err != nil {
		return err
	}
	hash := devcert.Hash(n.certs[site])
	return await(ctx, startLimit, "relay "+site+" has its new certificate", func() bool {
		dialing, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		var s *moqt.Session
		err := n.lab.Node("u" + site).Namespace.Do(func() (err error) {
			s, err = moqt.Dial(dialing, "moqt://"+n.addr(site, mediaPort), devcert.Pinned(hash), moqt.Handler{}, direct.Quiet)
			return err
		})
		if err == nil {
			s.Close(moqtwire.NoError, "")
		}
		return err == nil
	})
}

// pid returns the ID of a relay's process.
func (n *network) pid(site string) int {
	if pid, ok := n.pids[site]; ok {
		return pid
	}
	return n.relays[site].PID()
}

// upgrade replaces the process of a relay, and waits until the old one has ended.
func (n *network) upgrade(ctx context.Context, site string) error {
	node, old := n.lab.Node(site), n.pid(site)
	cmd := node.Command(ctx, n.relay, "upgrade", "--listen", n.addr(site, mediaPort))
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	err := node.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	pid := 0
	if err == nil {
		_, err = fmt.Sscanf(out.String(), "process %d takes new sessions", &pid)
	}
	if err != nil {
		return fmt.Errorf("upgrade relay %s: %w: %s", site, err, strings.TrimSpace(out.String()))
	}
	n.pids[site] = pid
	return await(ctx, startLimit, "the old process of relay "+site+" ends", func() bool { return ended(old) })
}

// ended reports whether a process has ended.
func ended(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(b), ") Z ")
}

// begin begins a fault.
func (n *network) begin(ctx context.Context, name string) error {
	switch name {
	case killedRelay:
		return n.signal(siteB, unix.SIGKILL)
	case killedPublisherRelay, killedPublisherRelayBackup:
		return n.signal(siteA, unix.SIGKILL)
	case stoppedRelay:
		return n.signal(siteB, unix.SIGSTOP)
	case cutRelay:
		return n.lab.Set("rb", wire.Conditions{Loss: 1})
	case slowRelay:
		return n.lab.Set("rb", wire.Conditions{Rate: slowRate, QueueBytes: slowRate / 8 / 20}) // 50 ms
	case cutBus:
		return n.block(true)
	case partition:
		return n.lab.Set("ab", wire.Conditions{Loss: 1})
	case clockStep:
		return stepClock(n.pid(siteB), stepBy)
	case expiredCertificate:
		return n.expire(ctx, siteB)
	case upgradedPublisherRelay:
		return n.upgrade(ctx, siteA)
	case rollingUpgrade:
		for _, site := range []string{siteC, siteB, siteA} {
			if err := n.upgrade(ctx, site); err != nil {
				return err
			}
		}
	}
	return nil
}

const (
	// slowRate is a slowed relay's rate in bit/s.
	slowRate = 10e6
	// stepBy is the step of a relay's clock. It exceeds the life of tokens between relays.
	stepBy = time.Hour
)

// end ends a fault.
func (n *network) end(ctx context.Context, name string) error {
	switch name {
	case killedRelay:
		return n.restart(siteB)
	case killedPublisherRelay, killedPublisherRelayBackup:
		return n.restart(siteA)
	case stoppedRelay:
		return n.signal(siteB, unix.SIGCONT)
	case cutRelay, slowRelay:
		return n.lab.Set("rb", wire.Conditions{})
	case cutBus:
		return n.block(false)
	case partition:
		return n.lab.Set("ab", wire.Conditions{Delay: delayAB})
	case clockStep:
		return stepClock(n.pid(siteB), 0)
	case expiredCertificate:
		return n.renewCertificate(ctx, siteB)
	}
	return nil
}

// claims returns the number of namespaces that the relays' own publishers claim, or -1 if a relay does not respond.
func (n *network) claims(ctx context.Context) (sum int) {
	for _, site := range sites() {
		v := n.metric(ctx, site, "holocast_relay_cluster_published_namespaces")
		if v < 0 {
			return -1
		}
		sum += int(v)
	}
	return sum
}

// close ends everything and returns the paths that were late.
func (n *network) close() (late []string, err error) {
	for _, p := range n.clients {
		p.stop()
	}
	for site, r := range n.relays {
		if pid := n.pid(site); !ended(pid) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		r.Stop()
	}
	for _, c := range n.http {
		c.CloseIdleConnections()
	}
	if n.lab != nil {
		report, failed := n.lab.Finish()
		if failed == nil {
			late = report.Failures
		}
		err = errors.Join(failed, n.lab.Close())
	}
	if n.dir != "" {
		err = errors.Join(err, os.RemoveAll(n.dir))
	}
	return late, err
}
