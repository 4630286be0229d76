package main

import (
	"testing"

	"holocast/tools/holocast/doctor"
)

func TestDoctor(t *testing.T) {
	p := start(t, "holocast", "doctor", "--json", "--port", "0")
	p.mustSucceed()
	var r struct {
		Checks         []doctor.Finding
		OK, Warn, Fail int
	}
	p.lastLine(&r)
	if len(r.Checks) < 5 || r.OK+r.Warn+r.Fail != len(r.Checks) || r.Fail != 0 {
		t.Fatalf("%+v", r)
	}
	for _, f := range r.Checks {
		if f.Name == "" || f.Detail == "" || f.Status != doctor.OK && f.Status != doctor.Warn {
			t.Errorf("%+v", f)
		}
		if f.Name == "programs" && f.Status != doctor.OK {
			t.Errorf("%+v", f)
		}
	}
}
