//go:build linux

package duplication

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"holocast/internal/netlab"
)

// packages are where the programs of a run are built from.
var packages = map[string]string{
	"capture-server": "holocast/capture-server",
	"relay":          "holocast/relay",
	"holocast":       "holocast/tools/holocast",
	"edge":           "holocast/netfunc/edge",
	"controller":     "holocast/netfunc/controller",
}

// programs are executables by name.
type programs struct {
	path map[string]string
	temp string // folder to remove
}

// findPrograms finds the programs beside this one and builds those that are not there.
func findPrograms(ctx context.Context, names ...string) (*programs, error) {
	p := &programs{path: map[string]string{}}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		beside := filepath.Join(filepath.Dir(self), name)
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			p.path[name] = beside
			continue
		}
		if p.temp == "" {
			if p.temp, err = os.MkdirTemp("", "holocast-bench-*"); err != nil {
				return nil, err
			}
		}
		p.path[name] = filepath.Join(p.temp, name)
		if out, err := exec.CommandContext(ctx, "go", "build", "-o", p.path[name], packages[name]).CombinedOutput(); err != nil {
			return nil, errors.Join(fmt.Errorf("%s is not beside this program, and it cannot be built: %w\n%s", name, err, out), p.remove())
		}
	}
	return p, nil
}

func (p *programs) remove() error {
	if p.temp == "" {
		return nil
	}
	return os.RemoveAll(p.temp)
}

// process is a program that runs in a node of the lab.
type process struct {
	name   string
	title  string // what it is in lists of processes
	cmd    *exec.Cmd
	log    string // file with what it wrote to stderr
	stdout bytes.Buffer
	done   chan struct{}
	err    error // valid once done is closed
}

// niceness of the programs of a run: what runs on the machine besides shall not be
// measured.
const niceness = -15

// start starts a program in a node; what it says goes to dir/name-node.log, behind what was
// there.
func (p *programs) start(node *netlab.Node, dir, name string, args ...string) (*process, error) {
	cmd := node.Command(context.Background(), p.path[name], args...)
	x := &process{name: name, title: name, cmd: cmd, log: filepath.Join(dir, name+"-"+node.Name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(x.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = &x.stdout, log
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Setsid = false, true
	err = node.Namespace.Do(func() error {
		// Niceness is the thread's, and what it starts inherits it.
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, niceness); err != nil {
			return fmt.Errorf("niceness %d: %w", niceness, err)
		}
		defer func() { _ = unix.Setpriority(unix.PRIO_PROCESS, 0, 0) }()
		return cmd.Start()
	})
	_ = log.Close() // the program has its own
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	// Where the kernel schedules sessions, niceness counts within one only.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", cmd.Process.Pid), []byte(fmt.Sprint(niceness)), 0)
	go func() {
		defer close(x.done)
		x.err = cmd.Wait()
	}()
	return x, nil
}

// remove forgets a process that is to end before the others.
func (g *group) remove(x *process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.list = slices.DeleteFunc(g.list, func(y *process) bool { return y == x })
}

// kill ends the process without a warning.
func (x *process) kill() {
	_ = unix.Kill(-x.cmd.Process.Pid, unix.SIGKILL)
	<-x.done
}

// stop asks the process to end, and kills it where it does not. The error is of one that
// had ended before.
func (x *process) stop() error {
	select {
	case <-x.done:
		return x.failure()
	default:
	}
	_ = x.cmd.Process.Signal(unix.SIGINT)
	select {
	case <-x.done:
	case <-time.After(5 * time.Second):
		x.kill()
	}
	return nil
}

// failure describes the end of a process that should not have ended.
func (x *process) failure() error {
	text, _ := os.ReadFile(x.log)
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	err := x.err
	if err == nil {
		err = errors.New("without an error")
	}
	return fmt.Errorf("%s ended: %w\n  %s", x.name, err, strings.Join(lines[max(0, len(lines)-12):], "\n  "))
}

// said waits until what the process wrote holds text, and returns it all.
func (x *process) said(ctx context.Context, text string, patience time.Duration) (string, error) {
	deadline := time.After(patience)
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		if all, err := os.ReadFile(x.log); err == nil && bytes.Contains(all, []byte(text)) {
			return string(all), nil
		}
		select {
		case <-tick.C:
			continue
		case <-x.done:
			return "", x.failure()
		case <-deadline:
			return "", fmt.Errorf("%s did not say %q within %v: %w", x.name, text, patience, x.failure())
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// group is the processes of a run, in the order they were started.
type group struct {
	mu   sync.Mutex
	list []*process
}

func (g *group) add(x *process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.list = append(g.list, x)
}

// stop ends them all, the last first.
func (g *group) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := len(g.list) - 1; i >= 0; i-- {
		_ = g.list[i].stop()
	}
	g.list = nil
}

// check returns why one of them has ended.
func (g *group) check() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, x := range g.list {
		select {
		case <-x.done:
			return x.failure()
		default:
		}
	}
	return nil
}

// startRelay starts a relay in a node and returns its session's URL and certificate.
func (p *programs) startRelay(ctx context.Context, g *group, node *netlab.Node, dir string) (url, hash string, err error) {
	x, err := p.start(node, dir, "relay", "--listen", ":4443", "--insecure", "--http", "", "--tls-hosts", node.Addr.String(), "--log-format", "json")
	if err != nil {
		return "", "", err
	}
	g.add(x)
	const ready = "relay is listening"
	text, err := x.said(ctx, ready, 15*time.Second)
	if err != nil {
		return "", "", err
	}
	for line := range strings.Lines(text) {
		var l struct {
			Msg  string
			Hash string `json:"certificate_sha256"`
		}
		if json.Unmarshal([]byte(line), &l) == nil && l.Msg == ready {
			hash = l.Hash
		}
	}
	if hash == "" {
		return "", "", fmt.Errorf("the relay's log has no certificate hash: %s", text)
	}
	return fmt.Sprintf("moqt://%v:4443/bench", node.Addr), hash, nil
}
