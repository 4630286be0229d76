package wire

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestTrackNameString(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   TrackName
		want string
	}{
		{
			"draft example",
			TrackName{Namespace{"example.net", "team2", "project_x"}, "report"},
			"example.2enet-team2-project_x--report",
		},
		{"separators escaped", TrackName{Namespace{"a-b", "c"}, "points/0/high"}, "a.2db-c--points.2f0.2fhigh"},
		{"arbitrary bytes", TrackName{Namespace{"\x00\xff"}, "é"}, ".00.ff--.c3.a9"},
		{"empty name", TrackName{Namespace{"a"}, ""}, "a--"},
		{"empty namespace", TrackName{nil, "n"}, "--n"},
		{"both empty", TrackName{}, "--"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.in.String(); got != tt.want {
				t.Errorf("String() = %q, want %q", got, tt.want)
			}
			if got, err := ParseTrackName(tt.want); err != nil || !got.Equal(tt.in) {
				t.Errorf("ParseTrackName(%q) = %q, %v, want %q", tt.want, got, err, tt.in)
			}
		})
	}
}

func TestParseTrackNameErrors(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"no separator", "a-b", `no "--"`},
		{"upper-case digit", "a--.2E", "lower-case hex"},
		{"not hex", "a--.2g", "lower-case hex"},
		{"redundant escape", "a--.61", `must be written as 'a'`},
		{"redundant underscore", ".5f--a", `must be written as '_'`},
		{"trailing period", "a--b.", "unexpected '.'"},
		{"one digit", "a--b.2", "unexpected '.'"},
		{"one digit before a separator", "a.2--b", "unexpected '.'"},
		{"literal outside the set", "a--b/c", "unexpected '/'"},
		{"hyphen in the name", "a--b-c", "unexpected '-'"},
		{"third hyphen", "a---b", "unexpected '-'"},
		{"leading hyphen", "-a--b", "empty field"},
		{"not ASCII", "a--é", "unexpected"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseTrackName(tt.in)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("ParseTrackName(%q) = %q, %v, want an error with %q", tt.in, got, err, tt.want)
			}
		})
	}
}

func randomBytes(rnd *rand.Rand, atLeast, atMost int) string {
	b := make([]byte, atLeast+rnd.IntN(atMost-atLeast+1))
	for i := range b {
		b[i] = byte(rnd.UintN(256))
	}
	return string(b)
}

func TestTrackNameBijection(t *testing.T) {
	rnd := newRand(2)
	seen := map[string]TrackName{}
	for range 5000 {
		n := TrackName{Name: randomBytes(rnd, 0, 3)}
		for range rnd.IntN(3) {
			n.Namespace = append(n.Namespace, randomBytes(rnd, 1, 2))
		}
		s := n.String()
		if prior, ok := seen[s]; ok && !prior.Equal(n) {
			t.Fatalf("%q and %q both render as %q", prior, n, s)
		}
		seen[s] = n
		if got, err := ParseTrackName(s); err != nil || !got.Equal(n) {
			t.Fatalf("ParseTrackName(%q) = %q, %v", s, got, err)
		}
		if got, err := ParseNamespace(n.Namespace.String()); err != nil || !got.Equal(n.Namespace) {
			t.Fatalf("ParseNamespace(%q) = %q, %v", n.Namespace, got, err)
		}
	}
}

func TestNamespacePrefix(t *testing.T) {
	abc := Namespace{"a", "b", "c"}
	for _, tt := range []struct {
		prefix Namespace
		want   bool
	}{
		{nil, true},
		{Namespace{"a"}, true},
		{Namespace{"a", "b"}, true},
		{abc, true},
		{Namespace{"a", "b", "c", "d"}, false},
		{Namespace{"a", "x"}, false},
		{Namespace{"ab"}, false},
	} {
		if got := abc.HasPrefix(tt.prefix); got != tt.want {
			t.Errorf("%q.HasPrefix(%q) = %v", abc, tt.prefix, got)
		}
	}
	if abc.Equal(Namespace{"a", "b"}) || !abc.Equal(Namespace{"a", "b", "c"}) {
		t.Error("Equal compares only a prefix")
	}
}

func TestTrackNameValidate(t *testing.T) {
	fields := func(n int) (ns Namespace) {
		for range n {
			ns = append(ns, "x")
		}
		return ns
	}
	for _, tt := range []struct {
		name string
		in   TrackName
		want string // "" = valid
	}{
		{"empty", TrackName{}, ""},
		{"32 fields", TrackName{Namespace: fields(32)}, ""},
		{"33 fields", TrackName{Namespace: fields(33)}, "33 fields"},
		{"empty field", TrackName{Namespace: Namespace{"a", ""}}, "empty field"},
		{"4096 bytes", TrackName{Namespace{"a"}, strings.Repeat("n", 4095)}, ""},
		{"4097 bytes", TrackName{Namespace{"a"}, strings.Repeat("n", 4096)}, "4097 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.in.Validate()
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Validate() = %v, want %q", err, tt.want)
			}
			// Messages reject names that Validate rejects.
			if _, sendErr := AppendMessage(nil, &Subscribe{Track: tt.in}); (sendErr == nil) != (err == nil) {
				t.Errorf("AppendMessage: %v, Validate: %v", sendErr, err)
			}
		})
	}
}

func FuzzTrackName(f *testing.F) {
	f.Add("example.2enet-team2-project_x--report", "a", "b-c", "")
	f.Add("--", "\x00", "\xff", ".")
	f.Fuzz(func(t *testing.T, s, field1, field2, name string) {
		if n, err := ParseTrackName(s); err == nil && n.String() != s {
			t.Errorf("ParseTrackName(%q).String() = %q", s, n)
		}
		if field1 == "" || field2 == "" {
			return
		}
		n := TrackName{Namespace{field1, field2}, name}
		if got, err := ParseTrackName(n.String()); err != nil || !got.Equal(n) {
			t.Errorf("ParseTrackName(%q) = %q, %v", n.String(), got, err)
		}
	})
}

func BenchmarkTrackNameString(b *testing.B) {
	b.ReportAllocs()
	n := TrackName{Namespace{"holocast", "studio"}, "points/0/high"}
	for b.Loop() {
		_ = n.String()
	}
}
