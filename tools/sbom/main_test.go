package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// The test binary contains at least the standard library. Each component is listed once.
func TestDocument(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "other")
	if err := os.Symlink(self, other); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := run(&b, "v1.2.3", []string{self, other}); err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal(b.Bytes(), &d); err != nil {
		t.Fatal(err)
	}
	refs := map[string]int{d.Metadata.Component.Ref: 1}
	for _, c := range d.Components {
		refs[c.Ref]++
	}
	std := 0
	for ref, n := range refs {
		if n != 1 {
			t.Errorf("%s is listed %d times", ref, n)
		}
	}
	for _, c := range d.Components {
		if c.Name == "std" && c.Version != "" {
			std++
		}
	}
	if std != 1 || d.Metadata.Component.Version != "v1.2.3" {
		t.Errorf("%s", &b)
	}
	for _, dep := range d.Dependencies {
		for _, on := range dep.On {
			if refs[on] == 0 {
				t.Errorf("%s depends on the missing component %s", dep.Ref, on)
			}
		}
	}
}

func TestNoProgram(t *testing.T) {
	other := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(other, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, programs := range [][]string{nil, {other}, {other + ".none"}} {
		if err := run(&bytes.Buffer{}, "", programs); err == nil {
			t.Errorf("%q make a document", programs)
		}
	}
}
