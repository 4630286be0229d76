package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Apply returns c changed by a delta update (MSF §5.1.6 and §5.3). It does not modify c.
//
// The operation "update" is that of MSF's next version. Its text puts the target in parentName, but its
// example puts it in name. Apply accepts both.
func (c *Catalog) Apply(delta []byte) (*Catalog, error) {
	if len(delta) > MaxSize {
		return nil, fmt.Errorf("catalog: $: %d bytes, more than %d", len(delta), MaxSize)
	}
	var doc struct {
		GeneratedAt *int64            `json:"generatedAt"`
		IsComplete  *bool             `json:"isComplete"`
		DeltaUpdate []json.RawMessage `json:"deltaUpdate"`
		Version     json.RawMessage   `json:"version"`
		Tracks      json.RawMessage   `json:"tracks"`
	}
	if err := decode(delta, "$", &doc); err != nil {
		return nil, err
	}
	switch {
	case len(doc.DeltaUpdate) == 0:
		return nil, errors.New("catalog: $.deltaUpdate: missing or empty")
	case len(doc.DeltaUpdate) > maxDeltaOps:
		return nil, fmt.Errorf("catalog: $.deltaUpdate: %d operations, more than %d", len(doc.DeltaUpdate), maxDeltaOps)
	case doc.GeneratedAt == nil:
		return nil, errors.New("catalog: $.generatedAt: missing")
	case doc.Version != nil:
		return nil, errors.New("catalog: $.version: not allowed in a delta update")
	case doc.Tracks != nil:
		return nil, errors.New("catalog: $.tracks: not allowed in a delta update")
	}
	out := *c
	out.GeneratedAt = *doc.GeneratedAt
	if doc.IsComplete != nil {
		out.IsComplete = *doc.IsComplete
	}
	out.Tracks = slices.Clone(c.Tracks)
	for i, raw := range doc.DeltaUpdate {
		path := fmt.Sprintf("$.deltaUpdate[%d]", i)
		var op struct {
			Op     string            `json:"op"`
			Tracks []json.RawMessage `json:"tracks"`
		}
		if err := decode(raw, path, &op); err != nil {
			return nil, err
		}
		if op.Tracks == nil {
			return nil, fmt.Errorf("catalog: %s.tracks: missing", path)
		}
		for j, raw := range op.Tracks {
			if err := out.applyOne(op.Op, raw, fmt.Sprintf("%s.tracks[%d]", path, j)); err != nil {
				return nil, err
			}
			if len(out.Tracks) > maxTracks {
				return nil, fmt.Errorf("catalog: %s: more than %d tracks", path, maxTracks)
			}
		}
	}
	if err := out.Validate(); err != nil {
		return nil, fmt.Errorf("after delta update: %w", err)
	}
	return &out, nil
}

func (c *Catalog) applyOne(op string, raw json.RawMessage, path string) error {
	var ref struct {
		Name            string `json:"name"`
		Namespace       string `json:"namespace"`
		ParentName      string `json:"parentName"`
		ParentNamespace string `json:"parentNamespace"`
	}
	if err := decode(raw, path, &ref); err != nil {
		return err
	}
	name, namespace := ref.ParentName, ref.ParentNamespace
	if op == "remove" || op == "update" && name == "" {
		name, namespace = ref.Name, ref.Namespace
	}
	find := func(name, namespace string) int {
		return slices.IndexFunc(c.Tracks, func(t Track) bool { return t.Name == name && t.Namespace == namespace })
	}
	at := find(name, namespace)
	if op != "add" && at < 0 {
		return fmt.Errorf("catalog: %s: no track %.80q to %.20s", path, name, op)
	}
	var t Track
	switch op {
	case "add":
		if err := decode(raw, path, &t); err != nil {
			return err
		}
	case "remove":
		c.Tracks = slices.Delete(c.Tracks, at, at+1)
		return nil
	case "clone", "update":
		var err error
		if t, err = c.Tracks[at].override(raw, path); err != nil {
			return err
		}
		if op == "update" {
			c.Tracks[at] = t
			return nil
		}
		if ref.Name == "" {
			return fmt.Errorf("catalog: %s.name: missing; a clone needs a new name", path)
		}
	default:
		return fmt.Errorf("catalog: %s: operation %.20q: want add, remove, clone or update", path, op)
	}
	if find(t.Name, t.Namespace) >= 0 {
		return fmt.Errorf("catalog: %s.name: %.80q is taken by another track", path, t.Name)
	}
	c.Tracks = append(c.Tracks, t)
	return nil
}

// override returns t with the attributes in raw. It replaces each of them as a whole.
func (t Track) override(raw json.RawMessage, path string) (Track, error) {
	var declared map[string]json.RawMessage
	if err := decode(raw, path, &declared); err != nil {
		return Track{}, err
	}
	// encoding/json would write through pointers, slices and maps that t shares with its catalog.
	for field := range declared {
		switch strings.ToLower(field) { // encoding/json ignores case
		case "rendergroup":
			t.RenderGroup = nil
		case "altgroup":
			t.AltGroup = nil
		case "depends":
			t.Depends = nil
		case "buffers":
			t.Buffers = nil
		case "temporalid":
			t.TemporalID = nil
		case "spatialid":
			t.SpatialID = nil
		case "authinfo":
			t.AuthInfo = nil
		case "accessibility":
			t.Accessibility = nil
		case "hcpf":
			t.Points = nil
		case "hcsphere":
			t.Sphere = nil
		case "hctile":
			t.Tile = nil
		case "hcau":
			t.Sound = nil
		}
	}
	return t, decode(raw, path, &t)
}
