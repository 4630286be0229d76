package fbdt

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"holocast/internal/netlab"
	relayload "holocast/tools/lab/bench/internal/load"
	"holocast/tools/lab/bench/internal/program"
)

// media is a session's content.
type media struct {
	name string
	mbps float64 // mean of all radios together
	from string  // for holocast replay
	live bool
	play []string // arguments
}

// realSessions plays 360° video and a hologram through the relay, over radios with recorded rates.
func realSessions(ctx context.Context, o Options) (list []Session, err error) {
	if o.Data == "" {
		fmt.Fprintln(o.Log, "skip real sessions: set HOLOCAST_DATA to a folder with recordings")
		return nil, nil
	}
	temp, err := os.MkdirTemp("", "holocast-bench")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	p := &programs{temp: temp}
	all, err := p.media(ctx, o)
	if err != nil {
		return nil, err
	}
	for _, columns := range []int{2, 3} {
		for _, m := range all {
			if o.Quick && columns > 2 {
				continue
			}
			s, err := recorded(filepath.Join(o.Data, "network_traces"), columns, m.mbps)
			if err != nil {
				return nil, err
			}
			over := [][]int{nil}
			for i := range s.Radios {
				over[0] = append(over[0], i)
				over = append(over, []int{i})
			}
			for _, radios := range over {
				session, err := p.session(ctx, s, m, radios, o.Quick)
				if err := errors.Join(err, ctx.Err()); err != nil {
					return nil, fmt.Errorf("%s, %s: %w", s.Name, m.name, err)
				}
				list = append(list, session)
				fmt.Fprintln(o.Log, session)
			}
		}
	}
	return list, nil
}

// programs are Holocast's programs.
type programs struct{ temp string }

func (p *programs) path(ctx context.Context, name string) (string, error) {
	return program.Path(ctx, name, func() (string, error) { return p.temp, nil })
}

// Mean total rates of the radios, just above the rate of the best quality.
const (
	videoMbps    = 5
	hologramMbps = 110
)

// media prepares the video and records the hologram.
func (p *programs) media(ctx context.Context, o Options) ([]media, error) {
	holocast, err := p.path(ctx, "holocast")
	if err != nil {
		return nil, err
	}
	tour := filepath.Join(p.temp, "tour")
	if err := run(exec.CommandContext(ctx, holocast, "prepare", filepath.Join(o.Data, "video360", "congo.mp4"), tour,
		"--preset", "ultrafast", "--size", "1920x960")); err != nil {
		return nil, err
	}
	cloud := filepath.Join(p.temp, "cloud.mcap")
	if err := p.record(ctx, o, holocast, cloud); err != nil {
		return nil, err
	}
	gaze := filepath.Join(o.Data, "head_traces", "all_10hz.csv.gz") + ":10/0EUCC2"
	return []media{
		{name: video, mbps: videoMbps, from: tour, play: []string{"--no-decode", "--gaze", gaze}},
		{name: hologram, mbps: hologramMbps, from: cloud, live: true},
	}, nil
}

// Recording at a fraction of the real speed takes one processor at most.
const (
	recordFPS = 6
	speed     = 5 // of the replay
)

// record records a real camera's frames.
func (p *programs) record(ctx context.Context, o Options, holocast, to string) error {
	relay, err := relayload.Start(ctx, "")
	if err != nil {
		return err
	}
	defer relay.Stop()
	capture, err := p.path(ctx, "capture-server")
	if err != nil {
		return err
	}
	url, hash := "moqt://"+relay.Addr()+"/record", hashOf(relay)
	ctx, stop := context.WithCancel(ctx)
	var capturing sync.WaitGroup
	defer capturing.Wait()
	defer stop()
	camera := exec.CommandContext(ctx, capture, "--source", "livescan:"+filepath.Join(o.Data, "livescan_testdata"),
		"--cameras", "1", "--calibration", "none", "--low=false", "--layout", "a", "--depth-mode", "NFOV_UNBINNED",
		"--color-mode", "720P", "--geometry", "depth", "--fps", fmt.Sprint(recordFPS), "--certificate-hash", hash, url)
	failed := make(chan error, 1)
	capturing.Go(func() { failed <- run(camera) })
	err = run(exec.CommandContext(ctx, holocast, "record", url, to, "--certificate-hash", hash, "--wait", "--duration",
		"5s"))
	if err != nil {
		stop()
		return errors.Join(err, <-failed)
	}
	return nil
}

// hashOf returns a relay's certificate hash in hex.
func hashOf(relay *relayload.Relay) string {
	hash := relay.Hash()
	return hex.EncodeToString(hash[:])
}

// run runs a command. An error includes the end of the output.
func run(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return commandError(cmd, err, out)
	}
	return nil
}

func commandError(cmd *exec.Cmd, err error, out []byte) error {
	out = bytes.TrimSpace(out)
	return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, out[max(0, len(out)-1000):])
}

// session plays over the given radios.
func (p *programs) session(ctx context.Context, s Scenario, m media, over []int, quick bool) (session Session,
	err error,
) {
	length := 40 * time.Second
	if quick {
		length = 12 * time.Second
	}
	session = Session{Scenario: s.Name, Media: m.name, Over: together}
	if len(over) == 1 {
		session.Over = s.Radios[over[0]].Name
	}
	holocast, err := p.path(ctx, "holocast")
	if err != nil {
		return session, err
	}
	relayPath, err := p.path(ctx, "relay")
	if err != nil {
		return session, err
	}
	r, err := start(s, length+time.Minute)
	if err != nil {
		return session, err
	}
	defer func() { err = errors.Join(err, r.lab.Close()) }()
	server := r.lab.Node("b")
	relay, err := relayload.StartAt(relayPath, r.server.String(), server.Start, relayload.Unlimited()...)
	if err != nil {
		return session, err
	}
	defer relay.Stop()
	url, hash := "moqt://"+relay.Addr()+"/session", hashOf(relay)
	args := []string{"replay", m.from, url, "--certificate-hash", hash, "--loop", "--wait-viewer"}
	if m.live {
		args = append(args, "--live", "--speed", fmt.Sprint(speed))
	}
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	publisher := server.Command(ctx, holocast, args...)
	var log lockedBuffer
	publisher.Stdout, publisher.Stderr = &log, &log
	if err := server.Start(publisher); err != nil {
		return session, err
	}
	running.Go(func() { _ = publisher.Wait() })
	args = append([]string{
		"play", url, "--certificate-hash", hash, "--wait", "--json", "--duration", length.String(),
	}, m.play...)
	for _, i := range over {
		args = append(args, "--path", r.radios[i].name+"="+r.radios[i].addr.String())
	}
	if err := r.lab.Begin(); err != nil {
		return session, err
	}
	out, err := output(ctx, r.lab.Node("a"), holocast, args...)
	if err != nil {
		return session, fmt.Errorf("%w; publisher: %s", err, log.end())
	}
	if err := session.read(out); err != nil {
		return session, err
	}
	report, err := r.lab.Finish()
	if err != nil {
		return session, err
	}
	session.Failures = report.Failures
	return session, nil
}

// output runs a program in a node and returns its stdout.
func output(ctx context.Context, node *netlab.Node, path string, args ...string) (string, error) {
	cmd := node.Command(ctx, path, args...)
	var out strings.Builder
	var log lockedBuffer
	cmd.Stdout, cmd.Stderr = &out, &log
	err := node.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return "", commandError(cmd, err, []byte(log.end()))
	}
	return out.String(), nil
}

// lockedBuffer keeps the end of a program's output.
type lockedBuffer struct {
	mu   sync.Mutex
	text []byte
}

var _ io.Writer = (*lockedBuffer)(nil)

// Write implements io.Writer.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, p...)
	b.text = b.text[max(0, len(b.text)-1000):]
	return len(p), nil
}

func (b *lockedBuffer) end() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(bytes.TrimSpace(b.text))
}
