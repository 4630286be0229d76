package qlog

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"holocast/internal/devcert"
	"holocast/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// exchange sends data over a connection and records both of its ends in folder.
func exchange(t *testing.T, folder *Folder) {
	t.Helper()
	cert, err := devcert.Generate(time.Now(), "localhost")
	if err != nil {
		t.Fatal(err)
	}
	conf := &quic.Config{Tracer: folder.Trace}
	server := &tls.Config{
		Certificates: []tls.Certificate{cert},
		NextProtos:   []string{"test"},
		MinVersion:   tls.VersionTLS13,
	}
	ln, err := quic.ListenAddr("127.0.0.1:0", server, conf)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	client := devcert.Pinned(devcert.Hash(cert))
	client.NextProtos, client.ServerName = []string{"test"}, "localhost"
	c, err := quic.DialAddr(t.Context(), ln.Addr().String(), client, conf)
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.OpenUniStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write(make([]byte, 100<<10)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	other, err := ln.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	in, err := other.AcceptUniStream(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWithError(0, ""); err != nil {
		t.Fatal(err)
	}
	<-other.Context().Done()
}

// names returns the event names in a file and checks that all records are complete.
func names(t *testing.T, path string) map[string]int {
	t.Helper()
	var text []byte
	for range 500 { // the file is complete shortly after its connection has ended
		var err error
		if text, err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
		if len(text) > 0 && text[len(text)-1] == '\n' {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	seen := map[string]int{}
	for i, record := range bytes.Split(text, []byte{0x1e})[1:] {
		var e struct{ Name string }
		if err := json.Unmarshal(record, &e); err != nil {
			t.Fatalf("%s: record %d: %v: %q", filepath.Base(path), i, err, record)
		}
		seen[e.Name]++
	}
	return seen
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "*.sqlog"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestEveryConnectionHasAFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "qlog")
	folder, err := New(dir, 10, 1<<20, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, folder)
	list := files(t, dir)
	if len(list) != 2 {
		t.Fatalf("files of client and server: %v", list)
	}
	for _, path := range list {
		if n := names(t, path); n["transport:packet_sent"] == 0 || n["transport:packet_received"] == 0 {
			t.Errorf("%s has %v", filepath.Base(path), n)
		}
	}
}

func TestLimits(t *testing.T) {
	dir := t.TempDir()
	folder, err := New(dir, 3, 4<<10, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		exchange(t, folder)
	}
	list := files(t, dir)
	if len(list) != 3 {
		t.Errorf("%d files, want at most 3", len(list))
	}
	for _, path := range list {
		names(t, path)
		if info, err := os.Stat(path); err != nil || info.Size() > 8<<10 {
			t.Errorf("%s: %v bytes (%v)", filepath.Base(path), info.Size(), err)
		}
	}
}
