//go:build linux

package study

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holocast/internal/netlab"
	"holocast/internal/netlab/topology"
)

// TestTransports transfers an object and frames with each kind of transport over a slow path.
func TestTransports(t *testing.T) {
	if err := netlab.Supported(); err != nil {
		t.Skip(err)
	}
	top, err := topology.OnePath("slow", "rate: 60Mbit, delay: 2ms, queue: 1000 packets")
	if err != nil {
		t.Fatal(err)
	}
	tcp, remove, err := tcpNames(t.Output())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := remove(); err != nil {
			t.Error(err)
		}
	})
	for _, name := range []string{
		udp, udpPaced, "tcp-cubic", "tcp-vegas", "tcp-yeah", "quic-bbr", "quic-yeah-segments", moqtName, webTransport,
	} {
		t.Run(name, func(t *testing.T) {
			if control, ok := strings.CutPrefix(name, tcpPrefix); ok && tcp[control] == "" {
				t.Skip("not in this kernel")
			}
			c, err := measure(t.Context(), top, ID{Path: "lan", Transport: name, Load: objectLoad, Mbit: 3, KiB: 1024}, tcp)
			if err != nil {
				t.Fatal(err)
			}
			if c.Mbps <= 0 || c.Mbps > 60 || c.DelayMs < 2 || c.Delivery <= 0 || c.Delivery > 1 ||
				reliable(name) && (!c.Complete || c.Delivery != 1 || c.RetrievalS < 0.05) {
				t.Errorf("%+v", c)
			}
			t.Log(c)
			if name == udp {
				return
			}
			c, err = measure(t.Context(), top, ID{Path: "lan", Transport: name, Load: framesLoad, KiB: 1024, Seconds: 1}, tcp)
			if err != nil {
				t.Fatal(err)
			}
			if c.Mbps <= 0 || c.FrameP50Ms < 2 || c.Delivery < 0 || c.Delivery > 1 {
				t.Errorf("%+v", c)
			}
			t.Log(c)
		})
	}
}

func TestState(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cells", "state.jsonl")
	s, done, err := openState(Options{State: file, Resume: true})
	if err != nil || len(done) != 0 {
		t.Fatal(done, err)
	}
	want := Cell{ID: ID{Path: "wan", Transport: "quic-bbr", Load: objectLoad, Mbit: 10, KiB: 128}, Mbps: 3}
	if err := s.add(want); err != nil {
		t.Fatal(err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(data, `{"path":"lan","tra`...), 0o644); err != nil {
		t.Fatal(err)
	}
	s, done, err = openState(Options{State: file, Resume: true})
	if err != nil || len(done) != 1 || done[want.ID].Mbps != 3 {
		t.Fatal(done, err)
	}
	second := Cell{ID: ID{Path: "lan", Transport: "moqt", Load: objectLoad, Mbit: 10, KiB: 128}, Mbps: 4}
	if err := errors.Join(s.add(second), s.close()); err != nil {
		t.Fatal(err)
	}
	s, done, err = openState(Options{State: file, Resume: true})
	if err != nil || len(done) != 2 || done[second.ID].Mbps != 4 {
		t.Fatal("after a cut line: ", done, err)
	}
	_ = s.close()
	if s, done, err = openState(Options{State: file}); err != nil || len(done) != 0 {
		t.Fatal(done, err)
	}
	_ = s.close()
}

// TestBySize checks that frames, which have no size, add no point to a plot by size.
func TestBySize(t *testing.T) {
	r := Result{Cells: []Cell{
		{ID: ID{Path: "lan", Transport: moqtName, Load: framesLoad, KiB: largeBuffer}, Mbps: 40},
		{ID: ID{Path: "lan", Transport: moqtName, Load: objectLoad, Mbit: 10, KiB: largeBuffer}, Mbps: 100},
		{ID: ID{Path: "lan", Transport: moqtName, Load: objectLoad, Mbit: 1, KiB: largeBuffer}, Mbps: 10},
	}}
	p := r.bySize("", "lan", func(c Cell) float64 { return c.Mbps })
	if len(p.Series) != 1 || !slices.Equal(p.Series[0].T, []float64{1, 10}) ||
		!slices.Equal(p.Series[0].Y, []float64{10, 100}) {
		t.Errorf("%+v", p.Series)
	}
}

func TestSummary(t *testing.T) {
	cell := func(path, name, load string, mbit int, mbps float64, late bool) Cell {
		c := Cell{ID: ID{Path: path, Transport: name, Load: load, Mbit: mbit, KiB: largeBuffer}, Mbps: mbps, RetrievalS: 2}
		if late {
			c.Failures = []string{"late"}
		}
		return c
	}
	r := Result{Cells: []Cell{
		cell("lan", "udp", objectLoad, 10, 1, false), cell("lan", "udp", objectLoad, 100, 350, false),
		cell("lan", "udp", objectLoad, 100, 10, true), cell("wan", "moqt", framesLoad, 0, 40, false),
		cell("wan", "moqt", objectLoad, 100, 300, false),
	}}
	data, err := json.Marshal(r.Summary())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"lan":{"udp":{"mbps":350,`, `"retrieval_s":{"lan":{"udp":{"10":2,"100":2}}`, `"wifi":{}`, `"moqt":{"on_time":`,
	} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%s lacks %s", data, want)
		}
	}
}
