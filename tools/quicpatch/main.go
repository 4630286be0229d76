// Command quicpatch makes build/quic-go: the pinned quic-go from the module cache
// with a seam for congestion control from outside, with hooks for packets that are sent
// outside, with connections that outlive a moment without network and any number of moves of
// a client, and with resets within flow control. It makes build/webtransport-go as well, in
// which fewer goroutines wait, and writes a go.work that uses both. Nothing of their text is in
// this repository: the places to change are found in its syntax tree, and what is added is
// ours (tree/).
//
// docs/adr/0002-patched-quic-go.md and 0005-quic-go-hooks.md say why.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	root := flag.String("root", ".", "root `directory` of the repository")
	quiet := flag.Bool("q", false, "say nothing when all is up to date")
	work := flag.Bool("work", true, "write go.work too")
	flag.Parse()
	changed, err := run(*root, *work)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "quicpatch:", err)
		os.Exit(1)
	case changed:
		fmt.Printf("quicpatch: quic-go %s with our congestion control in %s\n", quicGo.version, filepath.Join(*root, quicGo.tree))
	case !*quiet:
		fmt.Printf("quicpatch: %s is up to date\n", filepath.Join(*root, quicGo.tree))
	}
}

// run makes the trees and, with work, go.work below root where they are not up to
// date.
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
	// Made aside and renamed, so that an interrupted run leaves no half of a tree.
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
