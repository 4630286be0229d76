package secureobjects

import (
	"encoding/json"

	"holocast/internal/catalog"
	"holocast/internal/moqt/wire"
)

// SealCatalog seals an object of the session's catalog track. A relay needs no catalog, but recorders
// do: the result is a catalog that lists the tracks without their descriptions, and carries the
// original in its field "hcsealed".
func (s *Sealer) SealCatalog(namespace wire.Namespace, l Location, payload []byte) ([]byte, error) {
	c, err := catalog.Parse(payload)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	_, sealed, err := s.seal(nil, l, nil, payload)
	keyID := s.keyID
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	shell := c.Shell(namespace, Scheme, Suite)
	shell.Sealed = &catalog.Sealed{
		KeyID: keyID, Namespace: namespace, Group: l.Group, Object: l.Object, Priority: int(l.Priority), Data: sealed,
	}
	return shell.Marshal()
}

// openCatalog returns the catalog in an object of the catalog track. In a replay it takes over what
// the replay says of the tracks' times.
func (t *track) openCatalog(l Location, payload []byte) ([]byte, *refusal) {
	var doc struct {
		Sealed *catalog.Sealed `json:"hcsealed"`
	}
	if json.Unmarshal(payload, &doc) != nil || doc.Sealed == nil {
		return nil, &refusal{reason: Unencrypted}
	}
	x := doc.Sealed
	at, ok := asLocation(x.Group, x.Object, x.Priority)
	if !ok {
		return nil, &refusal{Malformed, x.KeyID}
	}
	ns := t.v.namespace
	if t.replayed {
		ns = x.Namespace
	} else if at != l {
		return nil, &refusal{Forged, x.KeyID}
	}
	k, err := t.v.key(wire.TrackName{Namespace: ns, Name: catalog.TrackName}, x.KeyID)
	if err != nil {
		return nil, err
	}
	_, immutable := appendProperties(nil, x.KeyID)
	_, b, err := t.v.openWith(k, x.KeyID, at, immutable, x.Data)
	if err != nil {
		return nil, err
	}
	if !t.replayed {
		return b, nil
	}
	t.v.mu.Lock()
	if !ns.Equal(t.v.recorded) {
		t.v.recorded = ns
		t.v.epoch.Add(1)
	}
	t.v.mu.Unlock()
	if b, ok = retimed(b, payload); !ok {
		return nil, &refusal{Malformed, x.KeyID}
	}
	return b, nil
}

// retimed returns the catalog in b with the times in the shell of a replay.
func retimed(b, shell []byte) ([]byte, bool) {
	c, err := catalog.Parse(b)
	if err != nil {
		return nil, false
	}
	outer, err := catalog.Parse(shell)
	if err != nil {
		return nil, false
	}
	c.Retime(outer)
	b, err = c.Marshal()
	return b, err == nil
}
