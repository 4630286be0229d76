package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// kernel is a kernel maintained by a distribution.
type kernel struct {
	version string   // of Linux
	distro  string   // name of the distribution
	meta    string   // metapackage that depends on the newest kernel of this version
	sources []string // apt sources, without options
	ubuntu  bool     // signed with Ubuntu's keys, which Debian packages
	skip    string   // tests that this kernel does not support
}

const debian = "http://deb.debian.org/debian"

// kernels lists the tested kernels, oldest first.
var kernels = []kernel{
	{"5.10", "Debian 11", "linux-image-cloud-amd64", suites("bullseye"), false, ""},
	// This kernel's BPF_PROG_TEST_RUN passes GSO packets without a GSO type, so the MTU check
	// cannot measure segments. TestPairExactlyOnce sends real GSO packets.
	{
		"5.15",
		"Ubuntu 22.04",
		"linux-image-virtual",
		[]string{"http://archive.ubuntu.com/ubuntu jammy-updates main"},
		true,
		"TestDuplicateMTU",
	},
	{"6.1", "Debian 12", "linux-image-cloud-amd64", suites("bookworm"), false, ""},
	{"6.12", "Debian 13", "linux-image-cloud-amd64", suites("trixie"), false, ""},
}

func suites(release string) []string {
	return []string{debian + " " + release + " main", debian + "-security " + release + "-security main"}
}

const debianKeys = "/usr/share/keyrings/debian-archive-keyring.gpg"

// apt is a private apt state with its own sources.
type apt struct{ dir string }

// newApt downloads the indices of sources signed with the keys in a file.
func newApt(ctx context.Context, dir, keys string, sources []string) (apt, error) {
	a := apt{dir}
	for _, d := range []string{"state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return a, err
		}
	}
	var list strings.Builder
	for _, s := range sources {
		fmt.Fprintf(&list, "deb [arch=amd64 signed-by=%s] %s\n", keys, s)
	}
	if err := os.WriteFile(filepath.Join(dir, "sources.list"), []byte(list.String()), 0o600); err != nil {
		return a, err
	}
	_, err := a.command(ctx, "", "apt-get", "-qq", "update")
	return a, err
}

// command runs one of apt's programs in a directory and returns its output; "" means the current
// directory.
func (a apt) command(ctx context.Context, in, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, append([]string{
		"-o", "Dir::Etc::sourcelist=" + filepath.Join(a.dir, "sources.list"), "-o", "Dir::Etc::sourceparts=-",
		"-o", "Dir::State=" + filepath.Join(a.dir, "state"), "-o", "Dir::Cache=" + filepath.Join(a.dir, "cache"),
		"-o", "APT::Architecture=amd64", "-o", "Acquire::Languages=none",
		"-o", "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
		"-o", "APT::Sandbox::User=", "-o", "APT::Update::Error-Mode=any",
	}, args...)...)
	cmd.Dir = in
	return output(cmd)
}

// fetch downloads packages and unpacks them into a directory.
func (a apt) fetch(ctx context.Context, into string, packages ...string) error {
	tmp, err := os.MkdirTemp(a.dir, "download")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if _, err := a.command(ctx, tmp, "apt-get", append([]string{"-qq", "download"}, packages...)...); err != nil {
		return err
	}
	debs, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil {
		return err
	}
	for _, deb := range debs {
		if _, err := output(exec.CommandContext(ctx, "dpkg-deb", "--extract", deb, into)); err != nil {
			return err
		}
	}
	return nil
}

// newest returns the package of the newest kernel, which the metapackage meta depends on.
func (a apt) newest(ctx context.Context, meta string) (string, error) {
	out, err := a.command(ctx, "", "apt-cache", "depends", "--no-recommends", "--no-suggests", meta)
	if err != nil {
		return "", err
	}
	return dependency(out)
}

var imageLine = regexp.MustCompile(`(?m)^ *Depends: (linux-image-[0-9]\S*)$`)

// dependency finds the kernel package in the output of apt-cache depends.
func dependency(out string) (string, error) {
	m := imageLine.FindStringSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("no kernel package in %q", out)
	}
	return m[1], nil
}

// output returns a command's stdout. Its error includes stderr.
func output(cmd *exec.Cmd) (string, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// unpack unpacks a kernel's packages into a directory, unless it already exists. Delete the
// directory to get a newer kernel.
func (k kernel) unpack(ctx context.Context, work string) (dir string, err error) {
	dir = filepath.Join(work, k.version)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	keys := debianKeys
	if k.ubuntu {
		if keys, err = ubuntuKeys(ctx, work); err != nil {
			return "", fmt.Errorf("get Ubuntu archive keys: %w", err)
		}
	}
	a, err := newApt(ctx, filepath.Join(work, "apt-"+k.version), keys, k.sources)
	if err != nil {
		return "", err
	}
	image, err := a.newest(ctx, k.meta)
	if err != nil {
		return "", err
	}
	packages := []string{image}
	if k.ubuntu {
		packages = append(packages, strings.Replace(image, "image", "modules", 1))
	}
	unfinished := dir + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return "", err
	}
	if err := a.fetch(ctx, unfinished, packages...); err != nil {
		return "", err
	}
	return dir, os.Rename(unfinished, dir)
}

// ubuntuKeys returns the path of Ubuntu's signing keys, which it takes from a package signed by
// Debian.
func ubuntuKeys(ctx context.Context, work string) (string, error) {
	a, err := newApt(ctx, filepath.Join(work, "apt-keys"), debianKeys, suites("trixie")[:1])
	if err != nil {
		return "", err
	}
	dir := filepath.Join(work, "keys")
	return filepath.Join(dir, "usr/share/keyrings/ubuntu-archive-keyring.gpg"), a.fetch(ctx, dir, "ubuntu-keyring")
}
