// Command kernels runs the project's eBPF programs on distribution kernels in virtual machines. It
// loads and attaches each program, runs the tests of the programs' packages, and prints a table of
// kernels and programs. It also runs the relay's test of a wall-clock step, which would disturb the
// host. It fails if a program neither works nor returns an error that says the kernel is too old.
//
// Kernels are downloaded with apt, without installing or modifying them. Without KVM, QEMU emulates
// the CPU.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"holocast/tools/kernels/report"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kernels:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	work := flag.String("work", "build/kernels", "directory for packages, images and logs")
	limit := flag.Duration("limit", 40*time.Minute, "time limit per kernel")
	flag.Usage = func() {
		fmt.Fprintln(
			flag.CommandLine.Output(),
			"usage: go run ./tools/kernels [flags] [version ...]\n\nversion is a version of Linux; the default is all.",
		)
		flag.PrintDefaults()
	}
	flag.Parse()
	chosen, err := choose(flag.Args())
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(*work)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	programs, err := build(ctx, dir)
	if err != nil {
		return err
	}
	var rows []row
	var failed []error
	for _, k := range chosen {
		fmt.Fprintf(os.Stderr, "kernels: testing Linux %s of %s\n", k.version, k.distro)
		start := time.Now()
		lines, log, err := k.run(ctx, dir, programs, *limit)
		if err != nil {
			failed = append(failed, fmt.Errorf("kernel %s of %s: %w", k.version, k.distro, err))
		}
		r, problems := judge(k, lines)
		rows = append(rows, r...)
		for _, p := range problems {
			failed = append(failed, fmt.Errorf("kernel %s of %s: %s (%s)", k.version, k.distro, p, log))
		}
		fmt.Fprintf(os.Stderr, "kernels: testing Linux %s took %s\n", k.version, time.Since(start).Round(time.Second))
	}
	fmt.Print(table(rows))
	return errors.Join(failed...)
}

// choose returns the kernels with the given versions, or all kernels.
func choose(versions []string) ([]kernel, error) {
	if len(versions) == 0 {
		return kernels, nil
	}
	var chosen []kernel
	for _, v := range versions {
		i := slices.IndexFunc(kernels, func(k kernel) bool { return k.version == v })
		if i < 0 {
			return nil, fmt.Errorf("unknown kernel version %s; available: %s", v, strings.Join(all(), ", "))
		}
		chosen = append(chosen, kernels[i])
	}
	return chosen, nil
}

func all() (versions []string) {
	for _, k := range kernels {
		versions = append(versions, k.version)
	}
	return versions
}

// run boots a kernel and returns the guest's report and the path of the console log.
func (k kernel) run(
	ctx context.Context, work string, programs []program, limit time.Duration,
) (lines []report.Line, log string, err error) {
	dir, err := k.unpack(ctx, work)
	if err != nil {
		return nil, "", err
	}
	found, err := modules(dir, wanted)
	if err != nil {
		return nil, "", err
	}
	vmlinuz, err := filepath.Glob(filepath.Join(dir, "boot/vmlinuz-*"))
	if err != nil || len(vmlinuz) != 1 {
		return nil, "", errors.Join(err, fmt.Errorf("found %d kernels in %s/boot; want 1", len(vmlinuz), dir))
	}
	initramfs, out := filepath.Join(work, k.version+".cpio.gz"), filepath.Join(work, k.version+".jsonl")
	if err := image(initramfs, programs, found); err != nil {
		return nil, "", err
	}
	log = filepath.Join(work, k.version+".log")
	console, err := os.Create(log)
	if err != nil {
		return nil, log, err
	}
	defer func() { _ = console.Close() }()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	machine := exec.CommandContext(
		ctx, "qemu-system-x86_64", "-accel", accelerator(), "-cpu", "max", "-smp", "2", "-m", "1536", "-nodefaults",
		"-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio", "-serial", "file:"+out, "-kernel",
		vmlinuz[0], "-initrd", initramfs, "-append", "console=ttyS0 panic=-1 quiet "+report.SkipVariable+"="+k.skip,
	) // passed to init's environment
	machine.Stdout, machine.Stderr = console, console
	if err := os.WriteFile(out, nil, 0o600); err != nil {
		return nil, log, err
	}
	if err := machine.Run(); err != nil {
		return nil, log, fmt.Errorf("%w; see %s", errors.Join(err, ctx.Err()), log)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		return nil, log, err
	}
	lines, err = report.Read(bytes.NewReader(b))
	return lines, log, err
}

// accelerator returns kvm if the device is usable, otherwise tcg (emulation).
func accelerator() string {
	device, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return "tcg"
	}
	_ = device.Close()
	info, err := os.ReadFile("/proc/cpuinfo")
	if err == nil && regexp.MustCompile(`(?m)^flags\s*:.*\b(vmx|svm)\b`).Match(info) {
		return "kvm"
	}
	return "tcg"
}
