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
	"holocast/tools/lab/bench/internal/program"
)

// programs are executables by name.
type programs struct {
	path map[string]string
	temp string // folder to remove
}

// findPrograms finds the programs next to this one. It builds those that are missing.
func findPrograms(ctx context.Context, names ...string) (*programs, error) {
	p := &programs{path: map[string]string{}}
	folder := func() (_ string, err error) {
		if p.temp == "" {
			p.temp, err = os.MkdirTemp("", "holocast-bench-*")
		}
		return p.temp, err
	}
	for _, name := range names {
		path, err := program.Path(ctx, name, folder)
		if err != nil {
			return nil, errors.Join(err, p.remove())
		}
		p.path[name] = path
	}
	return p, nil
}

func (p *programs) remove() error {
	if p.temp == "" {
		return nil
	}
	return os.RemoveAll(p.temp)
}

// process is a program running in a node of the lab.
type process struct {
	name   string
	title  string // name in processor statistics
	cmd    *exec.Cmd
	log    string // file with its stderr
	stdout bytes.Buffer
	done   chan struct{}
	err    error // valid after done is closed
}

// niceness gives a run's programs priority over the machine's other programs.
const niceness = -15

// start starts a program in a node. Its stderr is appended to dir/name-node.log.
func (p *programs) start(node *netlab.Node, dir, name string, args ...string) (*process, error) {
	cmd := node.Command(context.Background(), p.path[name], args...)
	x := &process{
		name: name, title: name, cmd: cmd, log: filepath.Join(dir, name+"-"+node.Name+".log"),
		done: make(chan struct{}),
	}
	log, err := os.OpenFile(x.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = &x.stdout, log
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Setsid = false, true
	err = node.Namespace.Do(func() error {
		// Niceness belongs to the thread, and children inherit it.
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, niceness); err != nil {
			return fmt.Errorf("set niceness %d: %w", niceness, err)
		}
		defer func() { _ = unix.Setpriority(unix.PRIO_PROCESS, 0, 0) }()
		return cmd.Start()
	})
	_ = log.Close() // the child holds its own descriptor
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}

	// With autogroup scheduling, niceness only matters within a session, so set it for the session
	// too.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", cmd.Process.Pid), []byte(fmt.Sprint(niceness)), 0)
	go func() {
		defer close(x.done)
		x.err = cmd.Wait()
	}()
	return x, nil
}

// remove removes a process from the group before the process is stopped early.
func (g *group) remove(x *process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.list = slices.DeleteFunc(g.list, func(y *process) bool { return y == x })
}

// kill kills the process.
func (x *process) kill() {
	_ = unix.Kill(-x.cmd.Process.Pid, unix.SIGKILL)
	<-x.done
}

// stop terminates the process, and kills it if necessary. It returns an error if the process had
// already ended.
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

// failure describes why the process ended unexpectedly. Call it after done is closed.
func (x *process) failure() error {
	err := x.err
	if err == nil {
		err = errors.New("exit status 0")
	}
	return fmt.Errorf("%s ended: %w%s", x.name, err, x.tail())
}

// tail returns the last lines of the process's stderr, each after a line break.
func (x *process) tail() string {
	text, _ := os.ReadFile(x.log)
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return "\n  " + strings.Join(lines[max(0, len(lines)-12):], "\n  ")
}

// awaitOutput waits until the process's stderr contains text and returns stderr.
func (x *process) awaitOutput(ctx context.Context, text string, limit time.Duration) (string, error) {
	deadline := time.After(limit)
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
			return "", fmt.Errorf("%s did not print %q within %v%s", x.name, text, limit, x.tail())
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// group holds a run's processes in start order.
type group struct {
	mu   sync.Mutex
	list []*process
}

func (g *group) add(x *process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.list = append(g.list, x)
}

// stop ends all processes in reverse order.
func (g *group) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := len(g.list) - 1; i >= 0; i-- {
		_ = g.list[i].stop()
	}
	g.list = nil
}

// check returns an error if a process has ended.
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

// startRelay starts a relay in a node and returns its session URL and certificate hash.
func (p *programs) startRelay(ctx context.Context, g *group, node *netlab.Node, dir string) (url, hash string,
	err error,
) {
	x, err := p.start(node, dir, "relay", "--listen", ":4443", "--insecure", "--http", "", "--tls-hosts",
		node.Addr.String(), "--log-format", "json")
	if err != nil {
		return "", "", err
	}
	g.add(x)
	const ready = "relay is listening"
	text, err := x.awaitOutput(ctx, ready, 15*time.Second)
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
