package main

import (
	"compress/gzip"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// packages lists the packages whose tests the guests run: those with eBPF programs, and relay,
// which has the test that sets the machine's clock.
var packages = []string{"netfunc/bpf", "relay/fastpath/kernel", "relay/steer", "relay"}

// static links a package's C code statically, since guests have no C library.
var static = []string{"-tags", "netgo,osusergo", "-ldflags", "-linkmode external -extldflags -static"}

// program is a file in an image.
type program struct{ name, path string }

// build compiles the guest, the tests and the relay, all statically linked.
func build(ctx context.Context, work string) ([]program, error) {
	dir := filepath.Join(work, "programs")
	run := func(cgo string, args ...string) error {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo, "GOOS=linux", "GOARCH=amd64")
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
		}
		return nil
	}
	programs := []program{{"init", filepath.Join(dir, "init")}, {"programs/relay", filepath.Join(dir, "relay.program")}}
	for i, p := range []string{"holocast/tools/kernels/guest", "holocast/relay"} {
		if err := run("0", "build", "-o", programs[i].path, p); err != nil {
			return nil, err
		}
	}
	for _, p := range packages {
		t := program{path.Join("tests", p, "test"), filepath.Join(dir, strings.ReplaceAll(p, "/", "-"))}
		compile, cgo := []string{"test", "-c", "-o", t.path}, "0"
		if p == "relay" { // its tests emulate paths with C code
			compile, cgo = append(compile, static...), "1"
		}
		if err := run(cgo, append(compile, "holocast/"+p)...); err != nil {
			return nil, err
		}
		programs = append(programs, t)
		list := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "holocast/"+p)
		where, err := output(list)
		if err != nil {
			return nil, err
		}
		source := strings.TrimSpace(where)
		err = fs.WalkDir(os.DirFS(source), ".", func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && strings.HasPrefix(name, "testdata/") {
				programs = append(programs, program{path.Join("tests", p, name), filepath.Join(source, name)})
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return programs, nil
}

// image writes a guest's initramfs with programs and modules.
func image(file string, programs []program, modules []module) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	if err != nil {
		return err
	}
	a := archive{w: z}
	for _, p := range programs {
		b, err := os.ReadFile(p.path)
		if err == nil {
			err = a.file(p.name, 0o755, b)
		}
		if err != nil {
			return err
		}
	}
	var order strings.Builder
	for _, m := range modules {
		fmt.Fprintln(&order, m.name+".ko")
		if err := a.file("modules/"+m.name+".ko", 0o644, m.elf); err != nil {
			return err
		}
	}
	if err := a.file("modules/order", 0o644, []byte(order.String())); err != nil {
		return err
	}
	if err := a.end(); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return f.Close()
}
