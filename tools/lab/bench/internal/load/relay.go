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
	"holocast/tools/lab/bench/internal/cputime"
	"holocast/tools/lab/bench/internal/direct"
	"holocast/tools/lab/bench/internal/program"
)

// Relay is a relay under test. It is either a child process created by Start, StartAt or StartPeer,
// or a remote relay.
type Relay struct {
	// Set WebTransport and Loss before opening sessions.
	WebTransport bool    // instead of raw QUIC
	Loss         float64 // fraction of packets dropped, in each direction

	cmd    *exec.Cmd       // nil if remote
	target *connect.Target // of a remote relay
	url    string
	http   string   // address of /metrics; "" = none
	hash   [32]byte // of the certificate
	tls    *tls.Config
	temp   string // folder to remove
	remove func() // removes a binary built for this run
	done   chan struct{}
	output bytes.Buffer // stdout and stderr; read it after done is closed
}

// maxOutput limits the output kept, in bytes.
const maxOutput = 16 << 10

// At returns the remote relay at a session's URL. Publishers use namespaces below the session's.
// The relay's CPU time and memory are unknown.
func At(t connect.Target) (*Relay, error) {
	if _, err := t.Namespace(); err != nil {
		return nil, err
	}
	return &Relay{target: &t, url: t.Address()}, nil
}

// Local reports whether the relay is a local process with known CPU time and memory.
func (p *Relay) Local() bool { return p.cmd != nil }

// Start runs our relay on unused ports. path is the binary; "" selects the one next to this
// program, or builds one. more holds additional arguments.
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

// Unlimited returns arguments that lift the per-address and rate limits, as all load comes from one
// address.
func Unlimited() (args []string) {
	for _, limit := range []string{
		"connections.address", "handshakes.address", "handshakes.all", "initials.address",
		"initials.all", "bytes.session", "bytes.address", "bytes.all",
	} {
		args = append(args, "--limits", limit+"=0")
	}
	return args
}

// StartAt runs our relay without authentication on addr. start starts the process, for example in a
// network namespace. more holds additional arguments.
func StartAt(path, addr string, start func(*exec.Cmd) error, more ...string) (*Relay, error) {
	p := &Relay{done: make(chan struct{})}
	type listening struct {
		Msg, UDP, HTTP string
		Hash           string `json:"certificate_sha256"`
	}
	cmd := exec.Command(path, "--listen", net.JoinHostPort(addr, "0"), "--insecure", "--http", "", "--log-format",
		"json")
	cmd.Args = append(cmd.Args, more...)
	if err := p.run(cmd, start, func(line []byte) (bool, error) {
		var l listening
		_ = json.Unmarshal(line, &l) // other lines differ in shape
		if l.Msg != "relay is listening" {
			return false, nil
		}
		hash, err := devcert.ParseHash(l.Hash)
		if err != nil {
			return false, fmt.Errorf("parse the relay's certificate hash: %w", err)
		}
		p.url, p.http, p.hash, p.tls = "moqt://"+l.UDP, l.HTTP, hash, devcert.Pinned(hash)
		return true, nil
	}); err != nil {
		return nil, err
	}
	return p, nil
}

// moqRelayIETF holds the arguments of moq-relay-ietf; see StartPeer.
const moqRelayIETF = " --bind {addr} --tls-cert {cert} --tls-key {key} --coordinator-file {dir}/coordinator.json"

// StartPeer runs another relay implementation on an unused port. command contains {addr} for
// host:port, {cert} and {key} for PEM files and {dir} for an empty folder. Without placeholders it
// is the path of a moq-relay-ietf binary. StartPeer returns once the relay accepts a session.
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
		if err := os.WriteFile(file(f.name), pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.der}),
			0o600); err != nil {
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
	_ = udp.Close() // the peer cannot choose a port itself
	p.url, p.tls = "moqt://"+addr, devcert.Pinned(devcert.Hash(cert))
	words := strings.Fields(command)
	for i, word := range words {
		words[i] = strings.NewReplacer("{addr}", addr, "{cert}", file("cert.pem"), "{key}", file("key.pem"), "{dir}",
			temp).Replace(word)
	}
	if err := p.run(exec.Command(words[0], words[1:]...), (*exec.Cmd).Start, nil); err != nil {
		return nil, err
	}
	if err := p.awaitReady(ctx); err != nil {
		p.Stop()
		return nil, fmt.Errorf("%s: %w", filepath.Base(words[0]), err)
	}
	return p, nil
}

// awaitReady waits until the relay accepts a session.
func (p *Relay) awaitReady(ctx context.Context) error {
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
			return fmt.Errorf("did not start: %s", p.output.String())
		case <-ctx.Done():
			return fmt.Errorf("no session within %v: %w", startLimit, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// startLimit limits a relay's start.
const startLimit = 10 * time.Second

// run calls start to start cmd. Unless ready is nil, it then waits for an output line that ready
// accepts. It cleans up after an error.
func (p *Relay) run(cmd *exec.Cmd, start func(*exec.Cmd) error, ready func(line []byte) (bool, error)) error {
	p.cmd = cmd
	stderr, err := p.cmd.StderrPipe()
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
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if p.output.Len() < maxOutput {
				p.output.Write(append(lines.Bytes(), '\n'))
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
		return fmt.Errorf("%s did not start: %s", filepath.Base(cmd.Path), p.output.String())
	case <-time.After(startLimit):
		p.Stop()
		return fmt.Errorf("%s did not start within %v", filepath.Base(cmd.Path), startLimit)
	}
}

// Binary returns path if set, otherwise the relay next to this program, otherwise a binary that it
// builds. remove deletes a binary that was built.
func Binary(ctx context.Context, path string) (_ string, remove func(), err error) {
	if path != "" {
		return path, func() {}, nil
	}
	temp := ""
	remove = func() { _ = os.RemoveAll(temp) } // nothing without a folder
	path, err = program.Path(ctx, "relay", func() (_ string, err error) {
		temp, err = os.MkdirTemp("", "holocast-bench")
		return temp, err
	})
	if err != nil {
		remove()
		return "", nil, err
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

// Stop ends a local relay.
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

// Addr returns the relay's host:port for sessions.
func (p *Relay) Addr() string { return strings.TrimPrefix(p.url, "moqt://") }

// HTTP returns the host:port of the relay's metrics, or "" if it serves none.
func (p *Relay) HTTP() string { return p.http }

// PID returns the process ID of a local relay.
func (p *Relay) PID() int { return p.cmd.Process.Pid }

// Hash returns the certificate hash of a relay started by Start or StartAt.
func (p *Relay) Hash() [32]byte { return p.hash }

// Goroutines returns the relay's goroutine count, or 0 if the relay does not respond.
func (p *Relay) Goroutines(ctx context.Context) int { return int(p.Metrics(ctx)["go_goroutines"]) }

// Metrics returns the relay's metrics by series, that is name and labels. It returns nil if the
// relay does not respond.
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

// Memory returns the process's resident memory in bytes.
func (p *Relay) Memory() (int64, error) { return p.status("VmRSS") }

// PeakMemory returns the process's peak resident memory in bytes.
func (p *Relay) PeakMemory() (int64, error) { return p.status("VmHWM") }

func (p *Relay) status(field string) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("read relay memory: %w", err)
	}
	_, rest, _ := bytes.Cut(b, []byte("\n"+field+":"))
	var kb int64
	if _, err := fmt.Sscanf(string(rest), "%d kB", &kb); err != nil {
		return 0, fmt.Errorf("read relay memory: /proc/PID/status: %w", err)
	}
	return kb << 10, nil
}

// CPU returns the relay's CPU time, user and system.
func (p *Relay) CPU() (time.Duration, error) { return cputime.Of(p.cmd.Process.Pid) }

// Namespace implements Server.
func (p *Relay) Namespace(publisher int) moqt.Namespace {
	if p.target == nil {
		return namespace(publisher)
	}
	ns, _ := p.target.Namespace() // checked by At
	return append(ns, strconv.Itoa(publisher))
}

// Publish implements Server. Each call opens a session.
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

// Dial opens a session. scheme is moqt for raw QUIC or https for WebTransport.
func (p *Relay) Dial(ctx context.Context, scheme string, h moqt.Handler) (*moqt.Session, error) {
	return moqt.Dial(ctx, scheme+"://"+p.Addr(), p.tls, h, direct.Quiet)
}

// View implements Server.
func (p *Relay) View(ctx context.Context) (*moqt.Session, error) {
	return lossy(p.Loss, func(cfg moqt.Config) (*moqt.Session, error) { return p.open(ctx, moqt.Handler{}, cfg) })
}
