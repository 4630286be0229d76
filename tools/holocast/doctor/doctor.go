// Package doctor finds out what a machine can and cannot do for Holocast, by trying
// rather than by guessing, and says how to mend it.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/cpu"
)

// Status is how bad a finding is.
type Status string

// Statuses.
const (
	OK   Status = "ok"
	Warn Status = "warn" // something will be slower or missing
	Fail Status = "fail" // sessions will not work
)

// Finding is the result of one check.
type Finding struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Detail string `json:"detail"`
	Mend   string `json:"mend,omitempty"` // a command, or what to do
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

// Check is one thing to find out.
type Check struct {
	Name string
	Run  func(context.Context) Finding
}

// Run runs checks in their order.
func Run(ctx context.Context, checks []Check) []Finding {
	findings := make([]Finding, len(checks))
	for i, c := range checks {
		findings[i] = c.Run(ctx)
		findings[i].Name = c.Name
	}
	return findings
}

// Checks are those of this operating system. port is the relay's UDP and TCP port.
func Checks(port int) []Check {
	return append([]Check{
		{"processor", processor},
		{"UDP and TCP port", func(ctx context.Context) Finding { return freePort(ctx, port) }},
	}, systemChecks()...)
}

func processor(context.Context) Finding {
	n := runtime.NumCPU()
	simd := "no SIMD kernels for " + runtime.GOARCH
	if runtime.GOARCH == "amd64" {
		simd = "SSE4.2 without AVX2"
		if cpu.X86.HasAVX2 {
			simd = "AVX2"
		}
	}
	detail := fmt.Sprintf("%d cores, %s", n, simd)
	if n < 4 {
		return warn("use fewer cameras or a larger machine", "%s; four full cameras need about four cores", detail)
	}
	if runtime.GOARCH == "amd64" && !cpu.X86.HasAVX2 {
		return warn("use a processor with AVX2 (2013 or later)", "%s: coding takes longer", detail)
	}
	return ok("%s", detail)
}

// freePort tries to listen where a relay would.
func freePort(ctx context.Context, port int) Finding {
	var lc net.ListenConfig
	addr := fmt.Sprintf(":%d", port)
	u, err := lc.ListenPacket(ctx, "udp", addr)
	if err == nil {
		err = u.Close()
		if t, terr := lc.Listen(ctx, "tcp", addr); terr == nil {
			err = errors.Join(err, t.Close())
		} else {
			err = terr
		}
	}
	switch {
	case err == nil:
		return ok("%d is free", port)
	case errors.Is(err, syscall.EADDRINUSE):
		return warn(fmt.Sprintf("ss -lnptu 'sport = :%d'   # who has it; or relay --listen :PORT --http :PORT", port), "%d is in use: a relay may be running already", port)
	case errors.Is(err, os.ErrPermission):
		return fail(fmt.Sprintf("sudo setcap cap_net_bind_service=+ep bin/relay   # or a port above 1023, not %d", port), "no permission to listen on %d", port)
	}
	return fail("relay --listen :PORT --http :PORT", "cannot listen on %d: %v", port, err)
}
