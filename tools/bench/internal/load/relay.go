package load

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"holocast/internal/connect"
	"holocast/internal/devcert"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/tools/bench/internal/cputime"
	"holocast/tools/bench/internal/direct"
)

// Relay is a relay to load: a process that Start or StartPeer began, or one somewhere else.
type Relay struct {
	// Set before sessions are opened.
	WebTransport bool    // instead of raw QUIC
	Loss         float64 // share of the packets to viewers, and of those from them, that are dropped

	cmd    *exec.Cmd       // nil: somewhere else
	target *connect.Target // somewhere else
	url    string
	http   string   // address of its metrics; "" = none
	hash   [32]byte // of its certificate
	tls    *tls.Config
	temp   string // directory to remove
	remove func() // its binary, if that was built for it
	done   chan struct{}
	said   bytes.Buffer // at its start; to be read once done is closed
}

// maxSaid bounds what is kept of a relay's output, bytes.
const maxSaid = 16 << 10

// At is the relay of a session's URL. Publishers have namespaces below the session's. Its
// processor time and memory are not known.
func At(t connect.Target) (*Relay, error) {
	if _, err := t.Namespace(); err != nil {
		return nil, err
	}
	return &Relay{target: &t, url: t.Address()}, nil
}

// Local reports whether the relay is a process of this machine, whose processor time and memory
// are known.
func (p *Relay) Local() bool { return p.cmd != nil }

// Start runs our relay on ports of its own. path is its binary; "" means the one beside this
// program or, in the source tree, one built for this run. more are further arguments.
func Start(ctx context.Context, path string, more ...string) (*Relay, error) {
	path, remove, err := Binary(ctx, path)
	if err != nil {
		return nil, err
	}
	p, err := StartAt(path, "127.0.0.1", (*exec.Cmd).Start, append(Unlimited(), more...)...)
	if err != nil {
		remove()
		return nil, err
	}
	p.remove = remove
	return p, nil
}

// Unlimited are arguments of our relay where all load comes from one address, at any rate.
func Unlimited() (args []string) {
	for _, limit := range []string{"connections.address", "handshakes.address", "handshakes.all", "initials.address", "initials.all", "bytes.session", "bytes.address", "bytes.all"} {
		args = append(args, "--limits", limit+"=0")
	}
	return args
}

// StartAt runs our relay, whose binary is at path, on an address where start starts it: in
// a network namespace, say. It is open to everybody there.
// more are further arguments.
func StartAt(path, addr string, start func(*exec.Cmd) error, more ...string) (*Relay, error) {
	p := &Relay{done: make(chan struct{})}
	type listening struct {
		Msg, UDP, HTTP string
		Hash           string `json:"certificate_sha256"`
	}
	cmd := exec.Command(path, "--listen", net.JoinHostPort(addr, "0"), "--insecure", "--http", "", "--log-format", "json")
	cmd.Args = append(cmd.Args, more...)
	if err := p.run(cmd, start, func(line []byte) (bool, error) {
		var l listening
		_ = json.Unmarshal(line, &l) // lines of other shapes are not it
		if l.Msg != "relay is listening" {
			return false, nil
		}
		hash, err := devcert.ParseHash(l.Hash)
		if err != nil {
			return false, fmt.Errorf("the relay's certificate: %w", err)
		}
		p.url, p.http, p.hash, p.tls = "moqt://"+l.UDP, l.HTTP, hash, devcert.Pinned(hash)
		return true, nil
	}); err != nil {
		return nil, err
	}
	return p, nil
}

// moqRelayIETF is how moq-relay-ietf is started; see StartPeer.
const moqRelayIETF = " --bind {addr} --tls-cert {cert} --tls-key {key} --coordinator-file {dir}/coordinator.json"

// StartPeer runs another implementation's relay on a port of its own: a command, with {addr} for
// host:port, {cert} and {key} for PEM files and {dir} for an empty folder; without any of these,
// the binary of a moq-relay-ietf. It is up once it takes a session.
func StartPeer(ctx context.Context, command string) (*Relay, error) {
	if !strings.Contains(command, "{") {
		command += moqRelayIETF
	}
	temp, err := os.MkdirTemp("", "holocast-bench")
	if err != nil {
		return nil, err
	}
	p := &Relay{temp: temp, done: make(chan struct{})}
	cert, err := devcert.Generate(time.Now(), "127.0.0.1", "localhost")
	if err != nil {
		p.clean()
		return nil, err
	}
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		p.clean()
		return nil, err
	}
	file := func(name string) string { return filepath.Join(temp, name) }
	for _, f := range []struct {
		name, kind string
		der        []byte
	}{{"cert.pem", "CERTIFICATE", cert.Certificate[0]}, {"key.pem", "PRIVATE KEY", key}} {
		if err := os.WriteFile(file(f.name), pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.der}), 0o600); err != nil {
			p.clean()
			return nil, err
		}
	}
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		p.clean()
		return nil, err
	}
	addr := udp.LocalAddr().String()
	_ = udp.Close() // it takes no port of its own choice
	p.url, p.tls = "moqt://"+addr, devcert.Pinned(devcert.Hash(cert))
	words := strings.Fields(command)
	for i, word := range words {
		words[i] = strings.NewReplacer("{addr}", addr, "{cert}", file("cert.pem"), "{key}", file("key.pem"), "{dir}", temp).Replace(word)
	}
	if err := p.run(exec.Command(words[0], words[1:]...), (*exec.Cmd).Start, nil); err != nil {
		return nil, err
	}
	if err := p.answers(ctx); err != nil {
		p.Stop()
		return nil, fmt.Errorf("%s: %w", filepath.Base(words[0]), err)
	}
	return p, nil
}

// answers waits until the relay takes a session.
func (p *Relay) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		attempt, stop := context.WithTimeout(ctx, time.Second)
		s, err := moqt.Dial(attempt, p.url, p.tls, moqt.Handler{}, direct.Quiet)
		stop()
		if err == nil {
			s.Close(wire.NoError, "")
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("did not start: %s", p.said.String())
		case <-ctx.Done():
			return fmt.Errorf("no session within %v: %w", startLimit, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// startLimit is how long a relay may take to start.
const startLimit = 10 * time.Second

// run has start start cmd and waits for a line that ready says yes to, unless ready is nil. After
// an error nothing is left of it.
func (p *Relay) run(cmd *exec.Cmd, start func(*exec.Cmd) error, ready func(line []byte) (bool, error)) error {
	p.cmd = cmd
	output, err := p.cmd.StderrPipe()
	if err != nil {
		p.clean()
		return err
	}
	p.cmd.Stdout = p.cmd.Stderr
	if err := start(p.cmd); err != nil {
		p.clean()
		return fmt.Errorf("start %s: %w", filepath.Base(cmd.Path), err)
	}
	up := make(chan error, 1)
	go func() {
		defer close(p.done)
		waiting := ready != nil
		for lines := bufio.NewScanner(output); lines.Scan(); {
			if p.said.Len() < maxSaid {
				p.said.Write(append(lines.Bytes(), '\n'))
			}
			if !waiting {
				continue
			}
			if ok, err := ready(lines.Bytes()); ok || err != nil {
				waiting = false
				up <- err
			}
		}
		_ = p.cmd.Wait()
	}()
	if ready == nil {
		return nil
	}
	select {
	case err := <-up:
		if err != nil {
			p.Stop()
		}
		return err
	case <-p.done:
		p.clean()
		return fmt.Errorf("%s did not start: %s", filepath.Base(cmd.Path), p.said.String())
	case <-time.After(startLimit):
		p.Stop()
		return fmt.Errorf("%s did not start within %v", filepath.Base(cmd.Path), startLimit)
	}
}

// Binary is the relay's: path, unless that is "", or the one beside this program, or one
// built for this run. remove removes the latter.
func Binary(ctx context.Context, path string) (_ string, remove func(), err error) {
	remove = func() {}
	if path != "" {
		return path, remove, nil
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "relay")
		if _, err := os.Stat(beside); err == nil {
			return beside, remove, nil
		}
	}
	temp, err := os.MkdirTemp("", "holocast-bench")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(temp) }
	path = filepath.Join(temp, "relay")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "holocast/relay").CombinedOutput(); err != nil {
		remove()
		return "", nil, fmt.Errorf("no relay beside this program, and it cannot be built: %w\n%s", err, out)
	}
	return path, remove, nil
}

func (p *Relay) clean() {
	if p.temp != "" {
		_ = os.RemoveAll(p.temp)
	}
	if p.remove != nil {
		p.remove()
	}
}

// Stop ends the relay that Start or StartPeer began.
func (p *Relay) Stop() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	t := time.AfterFunc(3*time.Second, func() { _ = p.cmd.Process.Kill() })
	<-p.done
	t.Stop()
	p.clean()
}

// Addr is the relay's host:port for sessions.
func (p *Relay) Addr() string { return strings.TrimPrefix(p.url, "moqt://") }

// HTTP is the host:port of the relay's metrics, "" where it serves none.
func (p *Relay) HTTP() string { return p.http }

// Hash is that of the certificate of a relay that StartAt began.
func (p *Relay) Hash() [32]byte { return p.hash }

// Goroutines is how many the relay says it has; 0 where it does not answer.
func (p *Relay) Goroutines(ctx context.Context) int { return int(p.Metrics(ctx)["go_goroutines"]) }

// Metrics are those of the relay that have no labels, by name; nil where it does not answer.
func (p *Relay) Metrics(ctx context.Context) map[string]float64 {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.http+"/metrics", nil)
	if err != nil {
		return nil
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil
	}
	defer func() { _ = resp.Body.Close() }()
	all := map[string]float64{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			all[name] = v
		}
	}
	return all
}

// Memory is what the process has in memory, bytes.
func (p *Relay) Memory() (int64, error) { return p.status("VmRSS") }

// PeakMemory is the most that the process had in memory, bytes.
func (p *Relay) PeakMemory() (int64, error) { return p.status("VmHWM") }

func (p *Relay) status(field string) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("memory of the relay: %w", err)
	}
	_, rest, _ := bytes.Cut(b, []byte("\n"+field+":"))
	var kb int64
	if _, err := fmt.Sscanf(string(rest), "%d kB", &kb); err != nil {
		return 0, fmt.Errorf("memory of the relay: /proc/PID/status: %w", err)
	}
	return kb << 10, nil
}

// CPU is the processor time the relay has used, user and system.
func (p *Relay) CPU() (time.Duration, error) { return cputime.Of(p.cmd.Process.Pid) }

// Namespace is where a publisher's tracks are.
func (p *Relay) Namespace(publisher int) moqt.Namespace {
	if p.target == nil {
		return namespace(publisher)
	}
	ns, _ := p.target.Namespace() // it has one: see At
	return append(ns, strconv.Itoa(publisher))
}

// Publish offers t over a session of its own, which stop ends.
func (p *Relay) Publish(ctx context.Context, t *origin.Track) (func(), error) {
	var set origin.Set
	set.Add(t)
	s, err := p.open(ctx, set.Handler(), direct.Quiet)
	if err != nil {
		return nil, err
	}
	if _, err := s.PublishNamespace(ctx, t.Name().Namespace); err != nil {
		s.Close(wire.NoError, "")
		return nil, err
	}
	return func() { s.Close(wire.NoError, "") }, nil
}

// open opens a session.
func (p *Relay) open(ctx context.Context, h moqt.Handler, cfg moqt.Config) (*moqt.Session, error) {
	if p.target != nil {
		return p.target.Dial(ctx, h, cfg)
	}
	scheme := "moqt"
	if p.WebTransport {
		scheme = "https"
	}
	return moqt.Dial(ctx, scheme+"://"+p.Addr(), p.tls, h, cfg)
}

// Dial opens a session by a URL scheme: moqt over raw QUIC, https over WebTransport.
func (p *Relay) Dial(ctx context.Context, scheme string, h moqt.Handler) (*moqt.Session, error) {
	return moqt.Dial(ctx, scheme+"://"+p.Addr(), p.tls, h, direct.Quiet)
}

// View opens a viewer's session.
func (p *Relay) View(ctx context.Context) (*moqt.Session, error) {
	return lossy(p.Loss, func(cfg moqt.Config) (*moqt.Session, error) { return p.open(ctx, moqt.Handler{}, cfg) })
}
