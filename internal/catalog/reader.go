package catalog

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// Reader follows a catalog track. Pass it the track's objects in order, starting with a whole
// catalog.
type Reader struct {
	current *Catalog
	group   uint64 // of the last whole catalog
	intact  bool   // every update since then was applied
}

// Properties are the properties of an object or track (MOQT §2.5).
type Properties interface {
	// Int returns the value of the first property of even type t.
	Int(t uint64) (v uint64, ok bool)
}

// ErrNoBase is returned for a delta update whose catalog, or an update before it, is missing.
var ErrNoBase = errors.New("catalog: $: a delta update without the catalog that it changes")

// Read applies the next object, of the given group, and returns the current catalog. properties lists
// the object's properties, then the track's; the first MSF_COMPRESSION found applies. On error the
// catalog is unchanged, and later delta updates of the group fail with [ErrNoBase].
func (r *Reader) Read(group uint64, payload []byte, properties ...Properties) (*Catalog, error) {
	compression := uint64(0)
	for _, p := range properties {
		if v, ok := p.Int(CompressionProperty); ok {
			compression = v
			break
		}
	}
	payload, err := Decompress(payload, compression)
	if err != nil {
		r.intact = false
		return nil, err
	}
	c, err := Parse(payload)
	if errors.Is(err, ErrDelta) {
		if !r.intact || group != r.group {
			return nil, ErrNoBase
		}
		c, err = r.current.Apply(payload)
	}
	if r.intact = err == nil; err != nil {
		return nil, err
	}
	r.current, r.group = c, group
	return c, nil
}

// CompressionProperty is the type of the MSF_COMPRESSION property (MSF §12.1).
const CompressionProperty = 0x78

// Decompress decompresses a payload according to its MSF_COMPRESSION value, 0 for none or 1 for
// gzip. The result has at most MaxSize bytes.
func Decompress(payload []byte, compression uint64) ([]byte, error) {
	switch compression {
	case 0:
		return payload, nil
	case 1:
	default:
		return nil, fmt.Errorf("catalog: $: MSF_COMPRESSION %d: want 0 (none) or 1 (gzip)", compression)
	}
	z, err := gzip.NewReader(bytes.NewReader(payload))
	if err != nil {
		return nil, fmt.Errorf("catalog: $: gzip: %w", err)
	}
	b, err := io.ReadAll(io.LimitReader(z, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("catalog: $: gzip: %w", err)
	}
	if len(b) > MaxSize {
		return nil, fmt.Errorf("catalog: $: gzip: more than %d bytes", MaxSize)
	}
	return b, nil
}
