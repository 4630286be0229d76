// Package doctor checks whether a machine can run Holocast, and suggests fixes.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/cpu"
)

// Status is a finding's severity.
type Status string

// Statuses.
const (
	OK   Status = "ok"
	Warn Status = "warn" // something is slower or unavailable
	Fail Status = "fail" // sessions will fail
)

// Finding is the result of one check.
type Finding struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Detail string `json:"detail"`
	Mend   string `json:"mend,omitempty"` // a command or instruction
}

func ok(detail string, args ...any) Finding {
	return Finding{Status: OK, Detail: fmt.Sprintf(detail, args...)}
}

func warn(mend, detail string, args ...any) Finding {
	return Finding{Status: Warn, Detail: fmt.Sprintf(detail, args...), Mend: mend}
}

func fail(mend, detail string, args ...any) Finding {
	return Finding{Status: Fail, Detail: fmt.Sprintf(detail, args...), Mend: mend}
}

// Check tests one capability.
type Check struct {
	Name string
	Run  func(context.Context) Finding
}

// Run runs checks in order.
func Run(ctx context.Context, checks []Check) []Finding {
	findings := make([]Finding, len(checks))
	for i, c := range checks {
		findings[i] = c.Run(ctx)
		findings[i].Name = c.Name
	}
	return findings
}

// machine is the machine under test; unit tests use a fake.
type machine struct {
	cores  int
	arch   string // a GOARCH
	avx2   bool
	listen func(ctx context.Context, network, address string) (io.Closer, error)
	system
}

// thisMachine returns the machine that runs the program.
func thisMachine() *machine {
	return &machine{
		cores: runtime.NumCPU(), arch: runtime.GOARCH, avx2: cpu.X86.HasAVX2,
		listen: func(ctx context.Context, network, address string) (io.Closer, error) {
			var lc net.ListenConfig
			if network == "udp" {
				return lc.ListenPacket(ctx, network, address)
			}
			return lc.Listen(ctx, network, address)
		},
		system: thisSystem(),
	}
}

// Checks returns the checks for this operating system. port is the relay's UDP and TCP port.
func Checks(port int) []Check { return thisMachine().checks(port) }

func (m *machine) checks(port int) []Check {
	return append([]Check{
		{"processor", m.processor},
		{"UDP and TCP port", func(ctx context.Context) Finding { return m.freePort(ctx, port) }},
	}, m.systemChecks()...)
}

func (m *machine) processor(context.Context) Finding {
	simd := "no SIMD kernels for " + m.arch
	if m.arch == "amd64" {
		simd = "SSE4.2 without AVX2"
		if m.avx2 {
			simd = "AVX2"
		}
	}
	detail := fmt.Sprintf("%d cores, %s", m.cores, simd)
	if m.cores < 4 {
		return warn("use fewer cameras or a larger machine", "%s; four full cameras need about four cores", detail)
	}
	if m.arch == "amd64" && !m.avx2 {
		return warn("use a processor with AVX2 (2013 or later)", "%s: coding takes longer", detail)
	}
	return ok("%s", detail)
}

// freePort tries to listen on the port like a relay.
func (m *machine) freePort(ctx context.Context, port int) Finding {
	var err error
	for _, network := range []string{"udp", "tcp"} {
		l, lerr := m.listen(ctx, network, fmt.Sprintf(":%d", port))
		if lerr != nil {
			err = lerr
			break
		}
		err = errors.Join(err, l.Close())
	}
	switch {
	case err == nil:
		return ok("%d is free", port)
	case errors.Is(err, syscall.EADDRINUSE):
		return warn(
			fmt.Sprintf(
				"ss -lnptu 'sport = :%d'   # shows the owner; or relay --listen 127.0.0.1:PORT --http 127.0.0.1:PORT", port,
			),
			"%d is in use: a relay may be running already",
			port,
		)
	case errors.Is(err, os.ErrPermission):
		return fail(
			fmt.Sprintf("sudo setcap cap_net_bind_service=+ep bin/relay   # or a port above 1023, not %d", port),
			"no permission to listen on %d", port,
		)
	}
	return fail("relay --listen 127.0.0.1:PORT --http 127.0.0.1:PORT", "cannot listen on %d: %v", port, err)
}
