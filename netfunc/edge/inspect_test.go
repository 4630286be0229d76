//go:build linux

package main

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestStatusOfHeldUpEdge checks that an edge that is running but does not answer is not reported as
// stopped.
func TestStatusOfHeldUpEdge(t *testing.T) {
	dir := t.TempDir()
	c := Config{Name: "far", Socket: filepath.Join(dir, "edge.sock"), Pin: filepath.Join(dir, "pin")}
	ln, err := net.Listen("unix", c.Socket)
	if err != nil {
		t.Fatal(err)
	}
	look := func() error {
		ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer stop()
		_, err := c.look(ctx)
		return err
	}
	if err := look(); err == nil || !strings.Contains(err.Error(), "edge far is running but does not answer") {
		t.Errorf("held up: %v", err)
	}
	_ = ln.Close()
	if err := look(); err == nil || !strings.Contains(err.Error(), "edge far is not running on this machine") {
		t.Errorf("stopped: %v", err)
	}
}
