package secureobjects

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holocast/internal/catalog"
	"holocast/internal/moqt/wire"
)

var update = flag.Bool("update", false, "rewrite testdata/objects.json")

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func number(t testing.TB, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func load(t testing.TB, file string, into any) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", file))
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestVectors checks the draft's test vectors of suite AES_128_GCM_SHA256_128 (appendix B). They
// write property types in two bytes, unlike MOQT, but properties are opaque here.
func TestVectors(t *testing.T) {
	var v struct {
		Names []struct {
			Namespace   []string
			Name, Bytes string
		}
		Keys []struct {
			Secret, Name, KeyID, Key, Salt string
			Namespace                      []string
		}
		Contexts []struct {
			Salt, Group, Object, Immutable, Nonce, AAD string
			Priority                                   uint8
		}
		Sealed []struct {
			Secret, Name, KeyID, Group, Object, Immutable, Payload, Encrypted, Sealed string
			Namespace                                                                 []string
			Priority                                                                  uint8
		}
	}
	load(t, "vectors.json", &v)
	for _, x := range v.Names {
		if got := fullTrackName(wire.TrackName{Namespace: x.Namespace, Name: x.Name}); hex.EncodeToString(got) != x.Bytes {
			t.Errorf("name %v: %x, want %s", x.Namespace, got, x.Bytes)
		}
	}
	for _, x := range v.Keys {
		key, salt, err := derive(
			unhex(t, x.Secret), fullTrackName(wire.TrackName{Namespace: x.Namespace, Name: x.Name}), number(t, x.KeyID),
		)
		if err != nil || hex.EncodeToString(key) != x.Key || hex.EncodeToString(salt) != x.Salt {
			t.Errorf("derive: %x, %x, %v, want %s and %s", key, salt, err, x.Key, x.Salt)
		}
	}
	for _, x := range v.Contexts {
		var s scratch
		l := Location{number(t, x.Group), number(t, x.Object), x.Priority}
		err := s.set((*[nonceSize]byte)(unhex(t, x.Salt)), l, unhex(t, x.Immutable))
		if err != nil || hex.EncodeToString(s.nonce[:]) != x.Nonce || hex.EncodeToString(s.aad) != x.AAD {
			t.Errorf("group %s: nonce %x, aad %x, %v; want %s, %s", x.Group, s.nonce, s.aad, err, x.Nonce, x.AAD)
		}
	}
	for _, x := range v.Sealed {
		name := wire.TrackName{Namespace: x.Namespace, Name: x.Name}
		k, err := newObjectKey(unhex(t, x.Secret), fullTrackName(name), number(t, x.KeyID))
		if err != nil {
			t.Fatal(err)
		}
		l := Location{number(t, x.Group), number(t, x.Object), x.Priority}
		var s scratch
		if err := s.set(&k.salt, l, unhex(t, x.Immutable)); err != nil {
			t.Fatal(err)
		}
		payload := unhex(t, x.Payload)
		plain := append(append(wire.AppendVarint(nil, uint64(len(payload))), payload...), unhex(t, x.Encrypted)...)
		sealed := k.aead.Seal(nil, s.nonce[:], plain, s.aad)
		if hex.EncodeToString(sealed) != x.Sealed {
			t.Errorf("sealed %x, want %s", sealed, x.Sealed)
		}
		v := NewViewer(name.Namespace, FixedKeys(nil))
		_, got, refused := v.openWith(k, number(t, x.KeyID), l, unhex(t, x.Immutable), sealed)
		if refused != nil || !bytes.Equal(got, payload) {
			t.Errorf("opened %x, %v, want %s", got, refused, x.Payload)
		}
	}
}

// object is a vector of an object as Holocast sends it.
type object struct {
	Keys             string   `json:"keys"`
	Namespace        []string `json:"namespace"`
	Name             string   `json:"name"`
	KeyID            string   `json:"keyId"`
	Group            string   `json:"group"`
	Object           string   `json:"object"`
	Priority         uint8    `json:"priority"`
	Properties       string   `json:"properties"`
	Payload          string   `json:"payload"`
	SealedProperties string   `json:"sealedProperties"`
	Sealed           string   `json:"sealed"`
}

const testKeys = "1.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8,2.ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8"

// sealerWith returns a sealer of a track under a given Key ID.
func sealerWith(t testing.TB, keys string, keyID uint64, name wire.TrackName) *Sealer {
	t.Helper()
	k, err := ParseKeys(keys)
	if err != nil {
		t.Fatal(err)
	}
	p := NewPublisher(k)
	secret, ok := k.Secret(uint32(keyID >> runBits))
	if !ok {
		t.Fatalf("no key %d", keyID>>runBits)
	}
	p.key, p.keyID = Key{uint32(keyID >> runBits), secret}, keyID
	return p.Sealer(name)
}

var points = wire.TrackName{Namespace: wire.Namespace{"holocast", "studio"}, Name: "points/0/full"}

// TestObjects checks the vectors that the web viewer and libholocast read too. -update rewrites them.
func TestObjects(t *testing.T) {
	if *update {
		var list []object
		for _, x := range []struct {
			name       wire.TrackName
			keyID      uint64
			l          Location
			properties []byte
			payload    []byte
		}{
			{points, 1<<runBits | 0x123456, Location{1_700_000_000_000, 0, 96}, nil, []byte("a frame")},
			{points, 2 << runBits, Location{5, 3, 128}, wire.AppendKeyValues(nil,
				wire.KeyValue{Type: 0x06, Int: 1_700_000_000_000_000}, wire.KeyValue{Type: 0x0d, Bytes: []byte{1, 2, 3}}), nil},
			{
				wire.TrackName{Namespace: points.Namespace, Name: "sound/0"},
				1<<runBits | 0xffffff,
				Location{math.MaxUint64, math.MaxUint32, 255},
				wire.AppendKeyValues(nil, wire.KeyValue{Type: 0x6863_706c, Int: 300}), bytes.Repeat([]byte{0xa5}, 300),
			},
		} {
			p, b, err := sealerWith(t, testKeys, x.keyID, x.name).Seal(nil, x.l, x.properties, x.payload)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, object{
				testKeys, x.name.Namespace, x.name.Name, strconv.FormatUint(x.keyID, 10),
				strconv.FormatUint(x.l.Group, 10), strconv.FormatUint(x.l.Object, 10), x.l.Priority,
				hex.EncodeToString(x.properties), hex.EncodeToString(x.payload), hex.EncodeToString(p),
				hex.EncodeToString(b),
			})
		}
		b, err := json.MarshalIndent(list, "", "  ")
		if err == nil {
			err = os.WriteFile("testdata/objects.json", append(b, '\n'), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var list []object
	load(t, "objects.json", &list)
	for i, x := range list {
		name := wire.TrackName{Namespace: x.Namespace, Name: x.Name}
		l := Location{number(t, x.Group), number(t, x.Object), x.Priority}
		p, b, err := sealerWith(t, x.Keys, number(t, x.KeyID), name).Seal(
			nil, l, unhex(t, x.Properties), unhex(t, x.Payload))
		if err != nil || hex.EncodeToString(p) != x.SealedProperties || hex.EncodeToString(b) != x.Sealed {
			t.Errorf("object %d: sealed %x, %x, %v", i, p, b, err)
		}
		keys, err := ParseKeys(x.Keys)
		if err != nil {
			t.Fatal(err)
		}
		got, payload, ok := NewViewer(name.Namespace, FixedKeys(keys)).OpenTrack(name, nil).Open(
			wire.Location{Group: l.Group, Object: l.Object}, l.Priority, unhex(t, x.SealedProperties), unhex(t, x.Sealed))
		if !ok || hex.EncodeToString(payload) != x.Payload {
			t.Errorf("object %d: opened %x, %v", i, payload, ok)
		}
		for kv := range wire.Properties(unhex(t, x.Properties)).All() {
			found := false
			for have := range got.All() {
				found = found || have.Type == kv.Type && have.Int == kv.Int && bytes.Equal(have.Bytes, kv.Bytes)
			}
			if !found {
				t.Errorf("object %d: property %#x is missing or changed", i, kv.Type)
			}
		}
	}
}

// sealedObject is an object as a relay has it.
type sealedObject struct {
	l       wire.Location
	prio    uint8
	p       wire.Properties
	payload []byte
}

func seal(t testing.TB, s *Sealer, group, id uint64, payload string) sealedObject {
	t.Helper()
	p, b, err := s.Seal(nil, Location{group, id, 96}, wire.AppendKeyValues(nil, wire.KeyValue{Type: 6, Int: 77}),
		[]byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	return sealedObject{wire.Location{Group: group, Object: id}, 96, p, b}
}

func (o sealedObject) clone() sealedObject {
	o.p, o.payload = bytes.Clone(o.p), bytes.Clone(o.payload)
	return o
}

func TestRefused(t *testing.T) {
	keys, err := ParseKeys(testKeys)
	if err != nil {
		t.Fatal(err)
	}
	s := sealerWith(t, testKeys, 1<<runBits|9, points)
	a, b := seal(t, s, 10, 0, "first"), seal(t, s, 10, 1, "second")
	other := seal(t, sealerWith(t, testKeys, 1<<runBits|9,
		wire.TrackName{Namespace: points.Namespace, Name: "points/1/full"}), 10, 1, "of another track")
	plain := wire.Properties(wire.AppendKeyValues(nil, wire.KeyValue{Type: propertyKeyID, Int: 1 << runBits}))
	foreign := seal(t, sealerWith(t, "1.ZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmY", 1<<runBits|9, points), 10, 1, "foreign")
	unknown := seal(t, sealerWith(t, "9.ZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmY", 9<<runBits, points), 10, 1, "unknown")
	for name, x := range map[string]struct {
		change func(o *sealedObject)
		want   Reason
	}{
		"a bit of the payload":  {func(o *sealedObject) { o.payload[3] ^= 1 }, Forged},
		"a bit of the tag":      {func(o *sealedObject) { o.payload[len(o.payload)-1] ^= 0x80 }, Forged},
		"the key ID":            {func(o *sealedObject) { o.p[len(o.p)-1] ^= 1 }, Forged},
		"a cut payload":         {func(o *sealedObject) { o.payload = o.payload[:8] }, Forged},
		"an empty payload":      {func(o *sealedObject) { o.payload = nil }, Forged},
		"the priority":          {func(o *sealedObject) { o.prio++ }, Forged},
		"the group":             {func(o *sealedObject) { o.l.Group++ }, Forged},
		"the object ID":         {func(o *sealedObject) { o.l.Object = 2 }, Forged},
		"a swap in the track":   {func(o *sealedObject) { o.l.Object = 0 }, Forged},
		"a swap between tracks": {func(o *sealedObject) { *o = other.clone() }, Forged},
		"another secret":        {func(o *sealedObject) { *o = foreign.clone() }, Forged},
		"an unknown key":        {func(o *sealedObject) { *o = unknown.clone() }, UnknownKey},
		"a huge key ID":         {func(o *sealedObject) { o.p, _ = appendProperties(nil, math.MaxUint64) }, UnknownKey},
		"no properties":         {func(o *sealedObject) { o.p = nil }, Unencrypted},
		"plain properties":      {func(o *sealedObject) { o.p = plain }, Unencrypted},
		"an ID above 32 bits":   {func(o *sealedObject) { o.l.Object = 1 << 32 }, Malformed},
		"a replay to a new place": {func(o *sealedObject) {
			o.p, _ = WithOriginalGroup(o.p, 10)
			o.l.Group = 11
		}, Forged},
	} {
		t.Run(name, func(t *testing.T) {
			v := NewViewer(points.Namespace, FixedKeys(keys))
			o := b.clone()
			x.change(&o)
			if _, _, ok := v.OpenTrack(points, nil).Open(o.l, o.prio, o.p, o.payload); ok {
				t.Fatal("opened")
			}
			if s := v.Stats(); s.Refused[x.want] != 1 || s.Total() != 1 || s.Opened != 0 {
				t.Errorf("counted as %v, want %v", s.Map(), x.want)
			}
		})
	}
	t.Run("a repeated object", func(t *testing.T) {
		v := NewViewer(points.Namespace, FixedKeys(keys))
		track := v.OpenTrack(points, nil)
		for i, o := range []sealedObject{a.clone(), b.clone(), a.clone(), b.clone()} {
			if _, _, ok := track.Open(o.l, o.prio, o.p, o.payload); ok != (i < 2) {
				t.Errorf("object %d: opened = %v", i, ok)
			}
		}
		if s := v.Stats(); s.Refused[Replayed] != 2 || s.Opened != 2 {
			t.Errorf("counted %v", s.Map())
		}
		o := a.clone()
		if _, _, ok := v.OpenTrack(points, nil).Open(o.l, o.prio, o.p, o.payload); !ok {
			t.Error("not opened in another subscription")
		}
	})
	t.Run("added properties are removed", func(t *testing.T) {
		o := b.clone()
		o.p = append(wire.AppendKeyValues(nil, wire.KeyValue{Type: 6, Int: 1}), append([]byte{wire.PropertyImmutable - 6},
			o.p[1:]...)...)
		p, _, ok := NewViewer(points.Namespace, FixedKeys(keys)).OpenTrack(points, nil).Open(o.l, o.prio, o.p, o.payload)
		if v, _ := p.Int(6); !ok || v != 77 {
			t.Errorf("property %d, opened = %v", v, ok)
		}
	})
}

func TestReplayedGroups(t *testing.T) {
	keys, _ := ParseKeys(testKeys)
	o := seal(t, sealerWith(t, testKeys, 2<<runBits, points), 10, 1, "recorded")
	o.p, _ = WithOriginalGroup(o.p, 10)
	replayed := wire.Properties(wire.AppendKeyValues(nil, wire.KeyValue{Type: ReplayedProperty, Int: 1}))
	if _, b, ok := NewViewer(points.Namespace, FixedKeys(keys)).OpenTrack(points, replayed).Open(
		wire.Location{Group: 700, Object: 1}, o.prio, o.p, o.payload); !ok || string(b) != "recorded" {
		t.Errorf("opened %q, %v", b, ok)
	}
}

func TestWindow(t *testing.T) {
	var w window
	for i, x := range []struct {
		group, object uint64
		want          bool
	}{
		{5, 0, true},
		{5, 0, false},
		{5, 1, true},
		{4, 9, true},
		{4, 9, false},
		{5, maxIDs + 5, true},
		{5, maxIDs + 5, false},
		{5, maxIDs + 4, false},
		{5, maxIDs + 6, true},
		{4 + windowGroups, 9, true},
		{4, 10, false}, // left the window
		{5, 1, false},
		{5, 2, true},
		{math.MaxUint64, 0, true},
		{math.MaxUint64, 0, false},
		{5 + windowGroups, 3, false},
	} {
		if got := w.add(x.group, x.object); got != x.want {
			t.Errorf("%d: add(%d, %d) = %v", i, x.group, x.object, got)
		}
	}
}

func TestSealRefuses(t *testing.T) {
	s := sealerWith(t, testKeys, 1<<runBits, points)
	seal(t, s, 1, 1, "x")
	if _, _, err := s.Seal(nil, Location{1, 1, 0}, nil, nil); !errors.Is(err, ErrAgain) {
		t.Errorf("sealed a location twice: %v", err)
	}
	if _, _, err := s.Seal(nil, Location{1, 1 << 32, 0}, nil, nil); !errors.Is(err, errObjectID) {
		t.Errorf("sealed object 2^32: %v", err)
	}
}

func TestRotation(t *testing.T) {
	keys, _ := ParseKeys(testKeys)
	only1, _ := ParseKeys(strings.Split(testKeys, ",")[0])
	p := NewPublisher(only1)
	s := p.Sealer(points)
	before := seal(t, s, 1, 0, "before")
	p.Replace(keys)
	after := seal(t, s, 2, 0, "after")
	v, old := NewViewer(points.Namespace, FixedKeys(keys)), NewViewer(points.Namespace, FixedKeys(only1))
	for _, o := range []sealedObject{before, after} {
		c := o.clone()
		if _, _, ok := v.OpenTrack(points, nil).Open(o.l, o.prio, o.p, c.payload); !ok {
			t.Errorf("group %d not opened", o.l.Group)
		}
		old.OpenTrack(points, nil).Open(o.l, o.prio, o.p, o.payload)
	}
	if s := old.Stats(); s.Opened != 1 || s.Refused[UnknownKey] != 1 {
		t.Errorf("a viewer with the old key: %d opened, %v", s.Opened, s.Map())
	}

	id := p.KeyID()
	s.limit = s.key.blocks.Load()
	seal(t, s, 3, 0, "at the limit")
	if next := p.KeyID(); next == id || next>>runBits != 2 {
		t.Errorf("Key ID %#x after %#x at the usage limit", next, id)
	}
}

// TestCatalogsDuringRotation checks that a catalog names the key that sealed it, even while the key changes.
func TestCatalogsDuringRotation(t *testing.T) {
	keys, _ := ParseKeys(testKeys)
	p := NewPublisher(keys)
	name := wire.TrackName{Namespace: points.Namespace, Name: catalog.TrackName}
	s := p.Sealer(name)
	v := NewViewer(points.Namespace, FixedKeys(keys))
	var sealing sync.WaitGroup
	for i := range uint64(4) {
		sealing.Go(func() {
			for l := (Location{Group: i}); l.Group < 400; l.Group += 4 {
				p.Replace(keys)
				b, err := s.SealCatalog(name.Namespace, l, []byte(`{"version":"draft-01","tracks":[]}`))
				if err != nil {
					t.Error(err)
					return
				}
				at := wire.Location{Group: l.Group}
				if _, _, ok := v.OpenTrack(name, nil).Open(at, l.Priority, nil, b); !ok {
					t.Errorf("catalog %d not opened", l.Group)
				}
			}
		})
	}
	sealing.Wait()
}

func TestCatalog(t *testing.T) {
	keys, _ := ParseKeys(testKeys)
	name := wire.TrackName{Namespace: points.Namespace, Name: catalog.TrackName}
	inner := []byte(`{"version":"draft-01","tracks":[{"name":"mic","packaging":"loc","isLive":true,"label":"SECRET"}]}`)
	s := NewPublisher(keys).Sealer(name)
	outer, err := s.SealCatalog(name.Namespace, Location{7, 0, 32}, inner)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(outer, []byte("SECRET")) {
		t.Error("the label is in the clear")
	}
	c, err := catalog.Parse(outer)
	if err != nil || !c.Encrypted() || c.Tracks[0].EncryptionScheme != Scheme || c.Tracks[0].CipherSuite != Suite {
		t.Fatalf("shell %s: %v", outer, err)
	}
	open := func(v *Viewer, l wire.Location, b []byte) (string, bool) {
		_, got, ok := v.OpenTrack(name, nil).Open(l, 32, nil, b)
		return string(got), ok
	}
	v := NewViewer(name.Namespace, FixedKeys(keys))
	if got, ok := open(v, wire.Location{Group: 7}, outer); !ok || got != string(inner) {
		t.Errorf("opened %q, %v", got, ok)
	}
	for what, x := range map[string]struct {
		keys  string
		group uint64
		b     []byte
		want  string
	}{
		"plain catalog": {testKeys, 7, inner, "not encrypted"},
		"moved":         {testKeys, 8, outer, "cannot be decrypted"},
		"lacks the key": {"7.AAECAwQFBgcICQoLDA0ODw", 7, outer, "key 2, which is not among"},
		"wrong secret":  {"2.AAECAwQFBgcICQoLDA0ODw", 7, outer, "another secret"},
	} {
		k, err := ParseKeys(x.keys)
		if err != nil {
			t.Fatal(err)
		}
		v := NewViewer(name.Namespace, FixedKeys(k))
		if _, ok := open(v, wire.Location{Group: x.group}, x.b); ok {
			t.Errorf("%s: opened", what)
			continue
		}
		<-v.Failed()
		if err := v.Err(); !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", what, err, x.want)
		}
	}
}

func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "session.key")
	k, err := CreateFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := CreateFile(path); err == nil || !strings.Contains(err.Error(), "--rotate") {
		t.Errorf("replaced a file: %v", err)
	}
	f, err := NewKeyFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(k.Rotate(), k.WriteFile(path)); err != nil {
		t.Fatal(err)
	}
	if _, ok := f.secret(2); ok {
		t.Error("the file was read twice within a second")
	}
	f.read = f.read.Add(-rereadAfter)
	if secret, ok := f.secret(2); !ok || !bytes.Equal(secret, k.Newest().Secret) {
		t.Error("the new key was not read")
	}
	again, err := ParseKeys(k.Text())
	if err != nil || again.Text() != k.Text() {
		t.Errorf("text %v, %v", again, err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("read a file of mode 0644: %v", err)
	}
	for _, text := range []string{
		"", "1", "1.", "0.AAECAwQFBgcICQoLDA0ODw", "1.AAECAwQFBgc", "x.AAECAwQFBgcICQoLDA0ODw",
		"16777216.AAECAwQFBgcICQoLDA0ODw",
		"1.AAECAwQFBgcICQoLDA0ODw,1.AAECAwQFBgcICQoLDA0ODw", "1.AAECAwQFBgcICQoLDA0ODw==",
	} {
		if _, err := ParseKeys(text); err == nil {
			t.Errorf("ParseKeys(%q) succeeded", text)
		} else if strings.Contains(err.Error(), "AAEC") {
			t.Errorf("ParseKeys(%q): %v contains the secret", text, err)
		}
	}
}

// cpu reports a benchmark's CPU time per gigabit of payload, which other processes do not change.
func cpu(b *testing.B, size int) (stop func()) {
	b.ReportAllocs()
	used := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	began := used()
	return func() { b.ReportMetric((used()-began).Seconds()/(float64(b.N)*float64(size)*8/1e9), "cpu-s/Gbit") }
}

func BenchmarkSeal(b *testing.B) {
	for _, size := range []int{100, 1_100, 250_000} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			s := sealerWith(b, testKeys, 1<<runBits, points)
			payload, buf := make([]byte, size), make([]byte, 0, size+100)
			defer cpu(b, size)()
			for group := uint64(0); b.Loop(); group++ {
				if _, _, err := s.Seal(buf, Location{group, 0, 96}, nil, payload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	for _, size := range []int{100, 1_100, 250_000} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			s := sealerWith(b, testKeys, 1<<runBits, points)
			keys, _ := ParseKeys(testKeys)
			v := NewViewer(points.Namespace, FixedKeys(keys))
			p, sealed, err := s.Seal(nil, Location{1, 0, 96}, nil, make([]byte, size))
			if err != nil {
				b.Fatal(err)
			}
			work := make([]byte, len(sealed))
			track := v.OpenTrack(points, nil).(*track)
			defer cpu(b, size)()
			for b.Loop() {
				copy(work, sealed)
				track.window = window{groups: track.window.groups} // the same location again
				clear(track.window.groups)
				if _, _, ok := track.Open(wire.Location{Group: 1}, 96, p, work); !ok {
					b.Fatal("refused")
				}
			}
		})
	}
}

func FuzzOpen(f *testing.F) {
	keys, _ := ParseKeys(testKeys)
	s := sealerWith(f, testKeys, 1<<runBits, points)
	o := seal(f, s, 3, 4, "payload")
	f.Add(uint64(3), uint64(4), uint8(96), []byte(o.p), o.payload)
	f.Add(uint64(3), uint64(4), uint8(96), []byte{}, []byte("plain"))
	f.Add(uint64(3), uint64(1)<<32, uint8(0), []byte{0x0b, 0x02, 0x02, 0x80}, []byte{})
	f.Fuzz(func(t *testing.T, group, id uint64, priority uint8, p, payload []byte) {
		v := NewViewer(points.Namespace, FixedKeys(keys))
		v.OpenTrack(wire.TrackName{Namespace: points.Namespace, Name: catalog.TrackName}, nil).Open(
			wire.Location{Group: group, Object: id}, priority, p, bytes.Clone(payload))
		_, got, ok := v.OpenTrack(points, nil).Open(wire.Location{Group: group, Object: id}, priority, p, payload)
		if ok && string(got) != "payload" {
			t.Errorf("opened %q", got)
		}
	})
}

func FuzzParseKeys(f *testing.F) {
	f.Add(testKeys)
	f.Fuzz(func(t *testing.T, text string) {
		k, err := ParseKeys(text)
		if err != nil {
			return
		}
		if again, err := ParseKeys(k.Text()); err != nil || again.Text() != k.Text() {
			t.Errorf("%q: %v", text, err)
		}
	})
}
