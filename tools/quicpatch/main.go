// Command quicpatch creates build/quic-go, a patched copy of the pinned quic-go from the module
// cache, and build/webtransport-go, and writes a go.work that uses both. The patched quic-go
// supports external congestion controllers and external packets, keeps connections open during
// network outages and client migrations, keeps resets within flow control, and sends and receives
// at a lower cost. The patched webtransport-go has fewer waiting goroutines. This repository
// contains no text of either module, since the places to change are found in their syntax trees and
// the added files (tree/) are ours.
//
// See docs/adr/0002-patched-quic-go.md and 0005-quic-go-hooks.md for the reasons.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	root := flag.String("root", ".", "root `directory` of the repository")
	quiet := flag.Bool("q", false, "print nothing if everything is up to date")
	work := flag.Bool("work", true, "write go.work too")
	flag.Parse()
	changed, err := run(*root, *work)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "quicpatch:", err)
		os.Exit(1)
	case changed:
		fmt.Printf("quicpatch: wrote patched quic-go %s to %s\n", quicGo.version, filepath.Join(*root, quicGo.tree))
	case !*quiet:
		fmt.Printf("quicpatch: %s is up to date\n", filepath.Join(*root, quicGo.tree))
	}
}

// run recreates outdated trees and, if work is set, go.work below root.
func run(root string, work bool) (changed bool, err error) {
	for _, m := range modules {
		made, err := m.make(root)
		if err != nil {
			return false, err
		}
		changed = changed || made
	}
	if !work {
		return changed, nil
	}
	written, err := writeWork(root)
	return changed || written, err
}

func (m module) make(root string) (changed bool, err error) {
	if err := m.checkRequired(root); err != nil {
		return false, err
	}
	want := m.stamp()
	tree := filepath.Join(root, m.tree)
	if have, err := os.ReadFile(filepath.Join(tree, stampFile)); err == nil && string(have) == want {
		return false, nil
	}
	source, err := m.locate(root)
	if err != nil {
		return false, err
	}
	if err := m.verify(source); err != nil {
		return false, err
	}
	// Create the tree elsewhere and rename it, so that an interrupted run leaves no incomplete
	// tree.
	tmp := tree + ".new"
	if err := os.RemoveAll(tmp); err != nil {
		return false, err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := copyTree(tmp, source); err != nil {
		return false, err
	}
	if err := m.patch(tmp); err != nil {
		return false, err
	}
	if err := os.WriteFile(filepath.Join(tmp, stampFile), []byte(want), 0o644); err != nil {
		return false, err
	}
	if err := os.RemoveAll(tree); err != nil {
		return false, err
	}
	return true, os.Rename(tmp, tree)
}
