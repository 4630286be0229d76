package secureobjects

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// Reason is the cause of a refusal.
type Reason int

// Reasons, in the order of Refused.
const (
	Unencrypted Reason = iota // it is not encrypted, or lacks a Key ID
	UnknownKey                // the viewer lacks its key
	Forged                    // changed or moved by a relay, or sealed with another secret
	Replayed                  // its location was received before in this subscription
	Malformed                 // authentic but not in the draft's format
	reasons
)

// String returns the reason's label in metrics and reports.
func (r Reason) String() string {
	return [...]string{"unencrypted", "unknown key", "forged", "replayed", "malformed"}[r]
}

// refusal says why an object is refused.
type refusal struct {
	reason Reason
	keyID  uint64
}

// Stats are a Viewer's counters of objects.
type Stats struct {
	Opened  uint64
	Refused [reasons]uint64 // by Reason
}

// Total returns the number of refused objects.
func (s Stats) Total() (n uint64) {
	for _, r := range s.Refused {
		n += r
	}
	return n
}

// Map returns the counters of refused objects by reason, without zeros.
func (s Stats) Map() map[string]uint64 {
	m := map[string]uint64{}
	for r, n := range s.Refused {
		if n > 0 {
			m[Reason(r).String()] = n
		}
	}
	return m
}

// OriginalGroup is the type of the object property with which a replay gives an object's recorded
// group ID, where it sends the object in another group. Its type is even, because the value is a
// number, and outside the mandatory range. Only replays may use it.
const OriginalGroup = 0x6863_6772

// Sealed reports whether p are the properties of an encrypted object.
func Sealed(p wire.Properties) bool {
	_, ok := p.Immutable().MutableInt(propertyKeyID)
	return ok
}

// WithOriginalGroup returns an object's properties with OriginalGroup.
func WithOriginalGroup(p wire.Properties, group uint64) (wire.Properties, error) {
	kvs, err := wire.ParseKeyValues(p)
	if err != nil {
		return nil, err
	}
	kvs = slices.DeleteFunc(kvs, func(kv wire.KeyValue) bool { return kv.Type == OriginalGroup })
	return wire.AppendKeyValues(nil, append(kvs, wire.KeyValue{Type: OriginalGroup, Int: group})...), nil
}

// ReplayedProperty is the type of the track property that marks a replay (docs/spec/replay.md), and
// OnDemand the last namespace field of a recording that viewers seek in.
const (
	ReplayedProperty = 0x6863_7270
	OnDemand         = "recording"
)

// KeyFile is a source of keys that reads a file again when an unknown key appears.
type KeyFile struct {
	path string

	mu   sync.Mutex
	keys *Keys
	read time.Time
}

// rereadAfter is the minimum time between reads of a key file.
const rereadAfter = time.Second

// NewKeyFile reads a key file.
func NewKeyFile(path string) (*KeyFile, error) {
	k, err := ReadFile(path)
	if err != nil {
		return nil, err
	}
	return &KeyFile{path: path, keys: k, read: time.Now()}, nil
}

// FixedKeys returns a source of keys that does not change.
func FixedKeys(k *Keys) *KeyFile { return &KeyFile{keys: k} }

// secret returns the secret of a key. If the file lacks it, secret reads the file again, at most once
// a second.
func (f *KeyFile) secret(id uint32) (secret []byte, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if secret, ok = f.keys.Secret(id); ok || f.path == "" || time.Since(f.read) < rereadAfter {
		return secret, ok
	}
	f.read = time.Now()
	if k, err := ReadFile(f.path); err == nil {
		f.keys = k
	}
	return f.keys.Secret(id)
}

// Viewer opens the objects of a session's tracks. It is safe for concurrent use.
type Viewer struct {
	namespace wire.Namespace
	keys      *KeyFile
	scratch   sync.Pool // of *scratch

	opened  atomic.Uint64
	refused [reasons]atomic.Uint64
	epoch   atomic.Uint64 // number of changes of recorded
	warned  atomic.Uint64 // ID of the last missing key logged

	mu       sync.Mutex
	recorded wire.Namespace // the namespace that a replay was sealed for; nil = namespace
	derived  map[derived]*objectKey
	order    []derived // of derived, oldest first
	readable bool      // a catalog was opened
	failed   chan struct{}
	err      error // why the session cannot be read; set before failed is closed
}

// derived identifies a derived key.
type derived struct {
	track string
	keyID uint64
}

// maxDerived bounds the derived keys in memory.
const maxDerived = 2048

// NewViewer returns a viewer of the session with this namespace.
func NewViewer(namespace wire.Namespace, keys *KeyFile) *Viewer {
	return &Viewer{
		namespace: namespace, keys: keys, scratch: sync.Pool{New: func() any { return new(scratch) }},
		derived: map[derived]*objectKey{}, failed: make(chan struct{}),
	}
}

// Stats returns the counters.
func (v *Viewer) Stats() (s Stats) {
	s.Opened = v.opened.Load()
	for i := range s.Refused {
		s.Refused[i] = v.refused[i].Load()
	}
	return s
}

// Failed is closed when a catalog was refused before any was opened. Err then returns the reason for
// users.
func (v *Viewer) Failed() <-chan struct{} { return v.failed }

// Err returns why the session cannot be read, or nil.
func (v *Viewer) Err() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.err
}

// ErrNoKey is the error of a viewer without keys.
var ErrNoKey = errors.New("the session is encrypted: give its key with --e2e-key FILE or $" + KeyVariable)

// sentence explains the refusal of a catalog to users.
func (e *refusal) sentence() error {
	switch e.reason {
	case Unencrypted:
		return errors.New("the session is not encrypted, although a key was given: the relay can see " +
			"and replace it. Play it without the key if you accept that")
	case UnknownKey:
		return fmt.Errorf("the session is encrypted with key %d, which is not among the keys given", e.keyID>>runBits)
	default:
		return fmt.Errorf("the session cannot be decrypted: key %d has another secret, or a relay changed the session",
			e.keyID>>runBits)
	}
}

// OpenTrack implements moqt.Opener. Tracks outside the session are not encrypted.
func (v *Viewer) OpenTrack(name wire.TrackName, properties wire.Properties) moqt.ObjectOpener {
	if !name.Namespace.HasPrefix(v.namespace) {
		return nil
	}
	replayed, _ := properties.Int(ReplayedProperty)
	past := slices.Contains(name.Namespace[len(v.namespace):], OnDemand)
	return &track{v: v, name: name, replayed: replayed != 0 || past}
}

// track opens the objects of one subscription or fetch.
type track struct {
	v        *Viewer
	name     wire.TrackName
	replayed bool

	current atomic.Pointer[currentKey]

	mu     sync.Mutex
	window window
}

// currentKey is the key of a track's last object.
type currentKey struct {
	*objectKey
	keyID uint64
	epoch uint64 // of the viewer's recorded namespace
}

// key returns the key of the track's objects under a Key ID.
func (t *track) key(keyID uint64) (*objectKey, *refusal) {
	epoch := t.v.epoch.Load()
	if c := t.current.Load(); c != nil && c.keyID == keyID && c.epoch == epoch {
		return c.objectKey, nil
	}
	k, err := t.v.key(t.v.sealedName(t.name), keyID)
	if err == nil {
		t.current.Store(&currentKey{k, keyID, epoch})
	}
	return k, err
}

// Open implements moqt.ObjectOpener.
func (t *track) Open(l wire.Location, priority uint8, p wire.Properties, payload []byte) (
	wire.Properties, []byte, bool,
) {
	p, payload, err := t.open(Location{l.Group, l.Object, priority}, p, payload)
	if t.name.Name == catalog.TrackName {
		t.v.judge(err)
	}
	if err != nil {
		t.v.refused[err.reason].Add(1)
		if err.reason == UnknownKey && t.name.Name != catalog.TrackName {
			t.v.warn(err)
		}
		return nil, nil, false
	}
	t.v.opened.Add(1)
	return p, payload, true
}

// warn logs once that the publisher changed to a key that this viewer lacks.
func (v *Viewer) warn(e *refusal) {
	if id := e.keyID >> runBits; v.warned.Swap(id) != id {
		slog.Warn("objects refused: their key is not among the keys given", "key", id)
	}
}

// judge remembers whether the session's catalogs can be opened.
func (v *Viewer) judge(err *refusal) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case err == nil:
		v.readable = true
	case !v.readable && v.err == nil && err.reason != Replayed:
		v.err = err.sentence()
		close(v.failed)
	}
}

func (t *track) open(l Location, p wire.Properties, payload []byte) (wire.Properties, []byte, *refusal) {
	at := l // as delivered
	if t.name.Name == catalog.TrackName {
		b, err := t.openCatalog(l, payload)
		if err != nil {
			return nil, nil, err
		}
		if !t.add(at) {
			return nil, nil, &refusal{reason: Replayed}
		}
		return nil, b, nil
	}
	if group, ok := p.Int(OriginalGroup); ok && t.replayed {
		l.Group = group
	}
	immutable, keyID, err := immutableOf(p)
	if err != nil {
		return nil, nil, err
	}
	k, err := t.key(keyID)
	if err != nil {
		return nil, nil, err
	}
	p, payload, err = t.v.openWith(k, keyID, l, immutable, payload)
	if err != nil {
		return nil, nil, err
	}
	if !t.add(at) {
		return nil, nil, &refusal{Replayed, keyID}
	}
	return p, payload, nil
}

func (t *track) add(l Location) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.window.add(l.Group, l.Object)
}

// immutableOf returns the content of Immutable Properties, and the Key ID in it.
func immutableOf(p wire.Properties) (immutable wire.Properties, keyID uint64, err *refusal) {
	immutable = p.Immutable()
	keyID, ok := immutable.MutableInt(propertyKeyID) // it has no nested Immutable Properties
	if !ok {
		return nil, 0, &refusal{reason: Unencrypted}
	}
	return immutable, keyID, nil
}

// openWith decrypts a payload in place and returns the original properties and payload in it.
func (v *Viewer) openWith(k *objectKey, keyID uint64, l Location, immutable, payload []byte) (
	wire.Properties, []byte, *refusal,
) {
	s := v.scratch.Get().(*scratch) //nolint:forcetypeassert // the pool's only type
	defer v.scratch.Put(s)
	if err := s.set(&k.salt, l, immutable); err != nil {
		return nil, nil, &refusal{Malformed, keyID}
	}
	if k.forged.Load() > maxForged {
		return nil, nil, &refusal{Forged, keyID}
	}
	b, err := k.aead.Open(payload[:0], s.nonce[:], payload, s.aad)
	if err != nil {
		k.forged.Add(1)
		return nil, nil, &refusal{Forged, keyID}
	}
	n, size, err := wire.ParseVarint(b)
	if err != nil || n > uint64(len(b)-size) {
		return nil, nil, &refusal{Malformed, keyID}
	}
	payload, b = b[size:size+int(n):size+int(n)], b[size+int(n):]
	properties, ok := encryptedProperties(b)
	if !ok {
		return nil, nil, &refusal{Malformed, keyID}
	}
	return properties, payload, nil
}

// encryptedProperties returns the content of an Encrypted Properties List, or nil if b is empty
// (§3.3.3). Its type has two bytes.
func encryptedProperties(b []byte) (p wire.Properties, ok bool) {
	if len(b) == 0 {
		return nil, true
	}
	if len(b) < 3 || b[0] != propertyEncrypted>>8 || b[1] != propertyEncrypted {
		return nil, false
	}
	n, size, err := wire.ParseVarint(b[2:])
	if err != nil || n != uint64(len(b)-2-size) {
		return nil, false
	}
	return b[2+size:], true
}

// sealedName returns the name that a track was sealed for. It differs from name in replays.
func (v *Viewer) sealedName(name wire.TrackName) wire.TrackName {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.recorded == nil {
		return name
	}
	rest := name.Namespace[len(v.namespace):]
	if len(rest) > 0 && rest[0] == OnDemand {
		rest = rest[1:]
	}
	return wire.TrackName{Namespace: append(slices.Clone(v.recorded), rest...), Name: name.Name}
}

// key returns the derived key of a track.
func (v *Viewer) key(name wire.TrackName, keyID uint64) (*objectKey, *refusal) {
	track := fullTrackName(name)
	v.mu.Lock()
	k := v.derived[derived{string(track), keyID}]
	v.mu.Unlock()
	if k != nil {
		return k, nil
	}
	if keyID >= maxKeyID {
		return nil, &refusal{UnknownKey, keyID}
	}
	secret, ok := v.keys.secret(uint32(keyID >> runBits))
	if !ok {
		return nil, &refusal{UnknownKey, keyID}
	}
	k, err := newObjectKey(secret, track, keyID)
	if err != nil {
		return nil, &refusal{UnknownKey, keyID}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	id := derived{string(track), keyID}
	if old := v.derived[id]; old != nil {
		return old, nil
	}
	if len(v.order) == maxDerived {
		delete(v.derived, v.order[0])
		v.order = v.order[1:]
	}
	v.derived[id] = k
	v.order = append(v.order, id)
	return k, nil
}

// asLocation checks that a catalog's sealed object fits MOQT.
func asLocation(group, object uint64, priority int) (Location, bool) {
	return Location{group, object, uint8(priority)}, priority >= 0 && priority <= math.MaxUint8
}
