//go:build linux && (amd64 || arm64)

package fastpath

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"holocast/internal/devcert"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/netlab/namespace"
	"holocast/internal/origin"
	"holocast/relay/steer"
	"holocast/tools/lab/bench/internal/cputime"
)

// relaySession is a publisher and viewers connected to the relay program.
type relaySession struct {
	l      *lab
	cmd    *exec.Cmd
	done   chan struct{}
	output bytes.Buffer // the relay's output until it listens
	hash   [32]byte
	track  *origin.Track

	sessions []*moqt.Session
	up       *opener
	down     map[uint16]*opener // by viewer port
	number   map[uint16]int     // viewer by port
	used     map[packetID]bool
	reused   int // repeated packet numbers
	calls    *syscalls
}

// packetID identifies a packet sent to a viewer.
type packetID struct {
	port   uint16
	number int64
}

var trackName = moqt.TrackName{Namespace: moqt.Namespace{"holocast", "bench"}, Name: "points"}

func startRelay(ctx context.Context, l *lab, binary, fastpath string, viewers int) (_ session, err error) {
	r := &relaySession{
		l: l, done: make(chan struct{}), track: origin.NewTrack(trackName, nil, origin.Limits{}),
		down: map[uint16]*opener{}, number: map[uint16]int{}, used: map[packetID]bool{},
	}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if err := r.start(binary, fastpath); err != nil {
		return nil, err
	}
	if r.calls, err = countSyscalls(r.cmd.Process.Pid); err != nil {
		return nil, err
	}
	var set origin.Set
	set.Add(r.track)
	s, log, err := r.dial(ctx, l.publisher, relayUpIP, set.Handler())
	if err != nil {
		return nil, err
	}
	if _, err := s.PublishNamespace(ctx, trackName.Namespace); err != nil {
		return nil, err
	}
	if r.up, err = openerOf(s, log, "CLIENT_TRAFFIC_SECRET_0", steer.IDLength); err != nil {
		return nil, err
	}
	for i := range viewers {
		s, log, err := r.dial(ctx, l.viewer, relayDownIP, moqt.Handler{})
		if err != nil {
			return nil, err
		}
		port := uint16(s.Conn().LocalAddr().(*net.UDPAddr).Port)
		if r.down[port], err = openerOf(s, log, "SERVER_TRAFFIC_SECRET_0", clientIDLen); err != nil {
			return nil, err
		}
		r.number[port] = i
		sub, err := s.Subscribe(ctx, trackName, moqt.SubscribeOptions{})
		if err != nil {
			return nil, err
		}
		go func() {
			for {
				if _, err := sub.AcceptDatagram(s.Context()); err != nil {
					return
				}
			}
		}()
	}
	return r, nil
}

// start runs the relay and waits until it listens.
func (r *relaySession) start(binary, fastpath string) error {
	r.cmd = exec.Command(binary, "--listen", ":"+strconv.Itoa(relayPort), "--insecure", "--http", "", "--admin",
		relayUpIP+":8080",
		"--log-format", "json", "--drain", "0s", "--fastpath", fastpath)
	stderr, err := r.cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := r.l.relay.Do(r.cmd.Start); err != nil {
		r.cmd = nil
		return fmt.Errorf("start relay: %w", err)
	}
	ready := make(chan string, 1)
	go func() {
		defer close(r.done)
		listening := false
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			var line struct {
				Msg  string
				Hash string `json:"certificate_sha256"`
			}
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "relay is listening" {
				listening = true
				ready <- line.Hash
			} else if !listening {
				r.output.Write(append(lines.Bytes(), '\n'))
			}
		}
		_ = r.cmd.Wait()
	}()
	select {
	case text := <-ready:
		r.hash, err = devcert.ParseHash(text)
		return err
	case <-r.done:
		return fmt.Errorf("the relay did not start: %s", r.output.String())
	case <-time.After(30 * time.Second):
		return errors.New("the relay did not start within 30 s")
	}
}

// dial opens a session with logged traffic secrets.
func (r *relaySession) dial(ctx context.Context, from *namespace.Namespace, ip string, h moqt.Handler) (s *moqt.Session,
	log *keyLog, err error,
) {
	log = &keyLog{}
	config := devcert.Pinned(r.hash)
	config.KeyLogWriter = log
	err = from.Do(func() (err error) {
		s, err = moqt.Dial(ctx, fmt.Sprintf("moqt://%s:%d", ip, relayPort), config, h,
			moqt.Config{Log: slog.New(slog.DiscardHandler)})
		return err
	})
	if err == nil {
		r.sessions = append(r.sessions, s)
	}
	return s, log, err
}

// clientIDLen is the connection ID length of quic-go's clients.
const clientIDLen = 4

// openerOf returns an opener that uses the secret with the given label and connection IDs of idLen
// bytes.
func openerOf(s *moqt.Session, log *keyLog, label string, idLen int) (*opener, error) {
	secret, err := log.secret(label)
	if err != nil {
		return nil, err
	}
	return newOpener(secret, s.Conn().ConnectionState().TLS.CipherSuite == tls.TLS_CHACHA20_POLY1305_SHA256, idLen)
}

func (r *relaySession) send(sequence uint64) {
	r.track.SendDatagram(moqt.Datagram{Group: sequence, DefaultPriority: true, Payload: payload(sequence)})
}

func (r *relaySession) in(p captured) (uint64, bool) {
	if p.to != relayPort {
		return 0, false
	}
	_, frames, err := r.up.open(p.payload)
	if err != nil {
		return 0, false
	}
	return sequenceIn(frames)
}

func (r *relaySession) out(p captured) (uint64, int, bool) {
	o := r.down[p.to]
	if o == nil {
		return 0, 0, false
	}
	number, frames, err := o.open(p.payload)
	if err != nil {
		return 0, 0, false
	}
	id := packetID{p.to, number}
	if r.used[id] {
		r.reused++
	}
	r.used[id] = true
	s, ok := sequenceIn(frames)
	return s, r.number[p.to], ok
}

// usage returns the resource use so far: the CPU time of the relay's process and eBPF programs, the
// process's system calls, and the packets that the programs sent or left to user space.
func (r *relaySession) usage() (usage, error) {
	process, err := cputime.Of(r.cmd.Process.Pid)
	if err != nil {
		return usage{}, err
	}
	programs, err := r.programTime()
	if err != nil {
		return usage{}, err
	}
	u := usage{cpu: process + programs, known: true, fallback: map[string]float64{}}
	if u.calls, err = r.calls.soFar(); err != nil {
		return usage{}, err
	}
	err = r.metrics(func(series string, v float64) {
		if series == "holocast_relay_fastpath_forwarded_packets_total" {
			u.kernel = v
		} else if reason, ok := strings.CutPrefix(series, `holocast_relay_fastpath_fallback_packets_total{reason="`); ok {
			u.fallback[strings.TrimSuffix(reason, `"}`)] = v
		}
	})
	return u, err
}

// programTime returns the run time of the eBPF programs at the ingress of the relay's interfaces,
// which includes sending the copies.
func (r *relaySession) programTime() (time.Duration, error) {
	var indexes []int
	for _, end := range r.l.ends {
		l, err := end.Link()
		if err != nil {
			return 0, err
		}
		indexes = append(indexes, l.Attrs().Index)
	}
	return programTime(r.l.relay, indexes)
}

// programTime returns the run time of the eBPF programs at the ingress of a namespace's interfaces.
func programTime(in *namespace.Namespace, interfaces []int) (total time.Duration, err error) {
	counted := map[ebpf.ProgramID]bool{} // each program is attached to several interfaces
	err = in.Do(func() error {
		for _, index := range interfaces {
			q, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: ebpf.AttachTCXIngress})
			if err != nil {
				return err
			}
			for _, attached := range q.Programs {
				if counted[attached.ID] {
					continue
				}
				counted[attached.ID] = true
				p, err := ebpf.NewProgramFromID(attached.ID)
				if err != nil {
					return err
				}
				stats, err := p.Stats()
				_ = p.Close()
				if err != nil {
					return err
				}
				total += stats.Runtime
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("read relay eBPF programs: %w", err)
	}
	return total, nil
}

// metrics calls take for each of the relay's metrics.
func (r *relaySession) metrics(take func(series string, v float64)) error {
	return metrics(r.l.relay, relayUpIP+":8080", take)
}

// metrics calls take for each metric served at addr in a namespace.
func metrics(in *namespace.Namespace, addr string, take func(series string, v float64)) error {
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (c net.Conn,
		err error,
	) {
		err = in.Do(func() error {
			c, err = new(net.Dialer).DialContext(ctx, network, address)
			return err
		})
		return c, err
	}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, Timeout: 30 * time.Second}).Get("http://" + addr + "/metrics")
	if err != nil {
		return fmt.Errorf("read relay metrics: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("read relay metrics: %w", err)
	}
	for line := range strings.Lines(string(body)) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil && series != "#" {
			take(series, v)
		}
	}
	return nil
}

// check fails if the relay sent two packets with the same number to a viewer.
func (r *relaySession) check() error {
	if r.reused > 0 {
		return fmt.Errorf("the relay used %d packet numbers twice", r.reused)
	}
	return nil
}

func (r *relaySession) close() {
	for _, s := range r.sessions {
		s.Close(wire.NoError, "")
	}
	if r.calls != nil {
		_ = r.calls.close()
	}
	if r.cmd == nil {
		return
	}
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	t := time.AfterFunc(3*time.Second, func() { _ = r.cmd.Process.Kill() })
	<-r.done
	t.Stop()
}
