//go:build linux

package netlab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"holocast/internal/netlab/topology"
)

const (
	maxOutput = 16 << 20        // bytes of output kept per command
	grace     = 2 * time.Second // from SIGTERM to SIGKILL
)

// A Result is the outcome of one command.
type Result struct {
	Host      string          `json:"host"`
	Command   string          `json:"command"`
	Seconds   float64         `json:"seconds"`
	ExitCode  int             `json:"exit_code"`       // -1 if a signal ended it
	Ended     bool            `json:"ended,omitempty"` // stopped because the run ended
	Error     string          `json:"error,omitempty"`
	JSON      json.RawMessage `json:"json,omitempty"`   // the output or its last line, if that is JSON
	Output    string          `json:"output,omitempty"` // otherwise
	Stderr    string          `json:"stderr,omitempty"`
	Truncated bool            `json:"truncated,omitempty"` // output exceeded the limit
}

// Command prepares a command for Start to run in the node's namespace. Its environment holds the
// addresses of all nodes (ADDR_B and ADDR6_B for node b) and the node's own name in NODE. When ctx
// is done, the command's process group receives SIGTERM, then SIGKILL.
func (n *Node) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "NODE="+n.Name)
	for _, node := range n.lab.nodes {
		key := strings.ToUpper(strings.ReplaceAll(node.Name, "-", "_"))
		if node.Addr.IsValid() {
			cmd.Env = append(cmd.Env, "ADDR_"+key+"="+node.Addr.String())
		}
		if node.Addr6.IsValid() {
			cmd.Env = append(cmd.Env, "ADDR6_"+key+"="+node.Addr6.String())
		}
	}
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGTERM) }
	cmd.WaitDelay = grace
	return cmd
}

// Start starts any command in the node's namespace.
func (n *Node) Start(cmd *exec.Cmd) error { return n.Namespace.Do(cmd.Start) }

// runCommands runs the topology's commands until all foreground commands have ended, the duration
// has elapsed or ctx is done. Background commands act as servers: they start before foreground
// commands with the same start time.
func (l *Lab) runCommands(ctx context.Context) {
	duration := l.topology.Duration
	if duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, duration)
		defer cancel()
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	commands := l.topology.Commands
	results := make([]Result, len(commands))
	begun := make([]chan struct{}, len(commands))
	for i := range begun {
		begun[i] = make(chan struct{})
	}
	var foreground, all sync.WaitGroup
	waited := false
	for i, c := range commands {
		if c.Background {
			all.Go(func() { results[i] = l.nodes[c.Host].run(ctx, c, nil, begun[i]) })
			continue
		}
		waited = true
		foreground.Add(1)
		var after []chan struct{}
		for j, other := range commands {
			if other.Background && other.Start <= c.Start {
				after = append(after, begun[j])
			}
		}
		all.Go(func() {
			defer foreground.Done()
			results[i] = l.nodes[c.Host].run(ctx, c, after, begun[i])
		})
	}
	if !waited {
		<-ctx.Done()
	}
	foreground.Wait()
	end()
	all.Wait()
	l.mu.Lock()
	l.results = append(l.results, results...)
	l.mu.Unlock()
}

// run runs one command of the topology at its start time, but not before the channels in after are
// closed. It closes begun when the command has started or never will.
func (n *Node) run(ctx context.Context, c topology.Command, after []chan struct{}, begun chan<- struct{}) Result {
	begin := sync.OnceFunc(func() { close(begun) })
	defer begin()
	result := Result{Host: n.Name, Command: c.Shell}
	select {
	case <-ctx.Done():
	case <-time.After(c.Start):
	}
	for _, other := range after {
		<-other
	}
	var stdout, stderr limitedBuffer
	cmd := n.Command(ctx, "sh", "-c", c.Shell)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	started := time.Now()
	err := n.Start(cmd)
	begin()
	switch {
	case err != nil && ctx.Err() != nil:
		result.Ended, result.Error = true, "the run ended before the command started"
		return result
	case err != nil:
		result.ExitCode, result.Error = -1, err.Error()
		return result
	}
	err = cmd.Wait()
	_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // children of the shell, if any
	result.Seconds = time.Since(started).Seconds()
	result.ExitCode = cmd.ProcessState.ExitCode()
	result.Ended = ctx.Err() != nil
	var exit *exec.ExitError
	if err != nil && !result.Ended && !errors.As(err, &exit) {
		result.Error = err.Error()
	}
	result.Stderr, result.Truncated = stderr.String(), stdout.full || stderr.full
	if result.JSON = jsonIn(stdout.Bytes()); result.JSON == nil {
		result.Output = stdout.String()
	}
	return result
}

// failure describes why a command failed. It returns "" if it did not.
func (r *Result) failure() string {
	switch {
	case r.Error != "":
		return fmt.Sprintf("%s: %s: %s", r.Host, r.Command, r.Error)
	case r.ExitCode != 0 && !r.Ended:
		return fmt.Sprintf("%s: %s: exit status %d: %s", r.Host, r.Command, r.ExitCode, lastLine(r.Stderr))
	}
	return ""
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// jsonIn returns out, or its last line, if that is a JSON object or array, and otherwise nil.
func jsonIn(out []byte) json.RawMessage {
	out = bytes.TrimSpace(out)
	for _, part := range [][]byte{out, out[bytes.LastIndexByte(out, '\n')+1:]} {
		if len(part) > 0 && (part[0] == '{' || part[0] == '[') && json.Valid(part) {
			return part
		}
	}
	return nil
}

// A limitedBuffer keeps the first maxOutput bytes.
type limitedBuffer struct {
	bytes.Buffer
	full bool
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	kept := p[:min(len(p), maxOutput-b.Len())]
	b.full = b.full || len(kept) < len(p)
	b.Buffer.Write(kept)
	return len(p), nil
}
