package columns

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestReader(t *testing.T) {
	r, err := NewReader(strings.NewReader("\ufeffT, Name\n 1.5 ,a\n2,b\n3,c\n"), 2)
	if err != nil {
		t.Fatal(err)
	}
	at := r.Find("name", "t")
	if !slices.Equal(at, []int{1, 0}) || r.Find("t", "x") != nil || r.Header() != "T, Name" {
		t.Fatalf("columns %v, header %q", at, r.Header())
	}
	if err := r.Next(); err != nil || r.Text(at[0]) != "a" || r.Line() != 2 {
		t.Errorf("%q in line %d, %v", r.Text(at[0]), r.Line(), err)
	}
	if v, err := r.Number(at[1]); v != 1.5 || err != nil {
		t.Errorf("%g, %v", v, err)
	}
	if _, err := r.Number(at[0]); err == nil || err.Error() != `"a" is not a number` {
		t.Errorf("error %v", err)
	}
	if err := r.Next(); err != nil || r.Text(at[0]) != "b" || r.Header() != "T, Name" {
		t.Errorf("%q of %q, %v", r.Text(at[0]), r.Header(), err)
	}
	if err := r.Next(); err == nil || err.Error() != "line 4: more than 2 samples" {
		t.Errorf("error %v", err)
	}
}

func TestEmpty(t *testing.T) {
	if _, err := NewReader(strings.NewReader(""), 1); err == nil {
		t.Error("no header line is accepted")
	}
	r, err := NewReader(strings.NewReader("t\n"), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("error %v", err)
	}
}
