// Package catalog defines a session's catalog: the MSF document (draft-ietf-moq-msf, version
// draft-01) that lists the session's tracks, with extension fields for point clouds and tiles.
//
// A publisher sends the whole catalog as object 0 of a new group of the track named [TrackName]. A
// subscriber passes the track's objects to a [Reader], which decompresses them and applies delta
// updates.
//
// Point-cloud tracks have packaging "hcpf" and a field "hcpf", a JSON object, which generic MSF
// players skip. Unknown fields are ignored, as MSF §5 requires. The web viewer's catalog reader is
// tested with the same vectors, in testdata.
package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
)

// TrackName is the name of every session's catalog track (MSF §5).
const TrackName = "catalog"

// Version is the MSF version that this package writes. Parse also accepts "1".
const Version = "draft-01"

// Values of [Track.Packaging] (MSF §5.2.4, Table 3).
const (
	PackagingLOC           = "loc"
	PackagingMediaTimeline = "mediatimeline"
	PackagingEventTimeline = "eventtimeline"
	PackagingCatalog       = "catalog"
	// PackagingPoints is an extension: each object is one description of one point-cloud frame
	// (docs/spec/point-cloud-frame.md).
	PackagingPoints = "hcpf"
	// PackagingClock is an extension: each object is a clock.Stamp.
	PackagingClock = "hcclock"
)

// Values of [Track.Role] (MSF §5.2.6, Table 4, and extensions).
const (
	RoleVideo  = "video"
	RoleAudio  = "audio"
	RoleData   = "data"
	RolePoints = "pointcloud"
)

// Limits of Parse. They far exceed the needs of a session but bound memory.
const (
	MaxSize      = 1 << 20 // bytes of one catalog object, after decompression
	maxTracks    = 4096
	maxInitData  = 1024
	maxDeltaOps  = 4096
	maxNameBytes = 4096 // longest full track name (MOQT §2.4.1)
)

// Catalog is an independent catalog (MSF §5.1). The fields are in document order, because MSF
// requires the initialization data after the tracks.
type Catalog struct {
	Version       string     `json:"version"`
	GeneratedAt   int64      `json:"generatedAt,omitempty"` // milliseconds since 1970
	IsComplete    bool       `json:"isComplete,omitempty"`  // the broadcast has ended
	Tracks        []Track    `json:"tracks"`
	PublishTracks []Track    `json:"publishTracks,omitempty"` // published by subscribers
	InitDataList  []InitData `json:"initDataList,omitempty"`
	Sealed        *Sealed    `json:"hcsealed,omitempty"` // only in encrypted sessions
}

// Track describes one track (MSF §5.2). Zero values are omitted from the document.
type Track struct {
	Namespace        string          `json:"namespace,omitempty"` // tuple fields joined by "/"; "" means the catalog's
	Name             string          `json:"name"`
	Packaging        string          `json:"packaging"`
	EventType        string          `json:"eventType,omitempty"` // only with PackagingEventTimeline
	IsLive           bool            `json:"isLive"`
	TargetLatency    float64         `json:"targetLatency,omitempty"` // milliseconds; excludes Buffers
	Buffers          *Buffers        `json:"buffers,omitempty"`
	Role             string          `json:"role,omitempty"`
	Label            string          `json:"label,omitempty"` // human-readable
	RenderGroup      *int            `json:"renderGroup,omitempty"`
	AltGroup         *int            `json:"altGroup,omitempty"` // same content at other qualities
	InitRef          string          `json:"initRef,omitempty"`  // an InitData.ID
	Depends          []string        `json:"depends,omitempty"`
	TemporalID       *int            `json:"temporalId,omitempty"` // of a layer; 0 is the base
	SpatialID        *int            `json:"spatialId,omitempty"`
	Codec            string          `json:"codec,omitempty"`
	MimeType         string          `json:"mimeType,omitempty"`
	Framerate        float64         `json:"framerate,omitempty"`  // frames per second
	Timescale        float64         `json:"timescale,omitempty"`  // units per second
	Bitrate          int64           `json:"bitrate,omitempty"`    // maximum, bits per second
	AvgBitrate       int64           `json:"avgBitrate,omitempty"` // bits per second
	MaxGOPDuration   float64         `json:"maxGopDuration,omitempty"`
	MaxGroupDuration float64         `json:"maxGroupDuration,omitempty"`
	Width            int             `json:"width,omitempty"`         // pixels
	Height           int             `json:"height,omitempty"`        // pixels
	DisplayWidth     int             `json:"displayWidth,omitempty"`  // pixels
	DisplayHeight    int             `json:"displayHeight,omitempty"` // pixels
	Samplerate       int             `json:"samplerate,omitempty"`
	ChannelConfig    string          `json:"channelConfig,omitempty"`
	Lang             string          `json:"lang,omitempty"`
	TrackDuration    int64           `json:"trackDuration,omitempty"` // milliseconds; only when not live
	Template         Template        `json:"template,omitzero"`       // media time of its locations
	ConnectionURI    string          `json:"connectionUri,omitempty"` // only in PublishTracks
	Token            string          `json:"token,omitempty"`
	AuthInfo         map[string]any  `json:"authInfo,omitempty"` // by scheme
	Accessibility    []Accessibility `json:"accessibility,omitempty"`

	EncryptionScheme string `json:"encryptionScheme,omitempty"` // only in encrypted sessions, as the next
	CipherSuite      string `json:"cipherSuite,omitempty"`

	// Points is set if and only if Packaging is PackagingPoints.
	Points *Points `json:"hcpf,omitempty"`
	// Sphere is set on the track "video" of a 360° session.
	Sphere *Sphere `json:"hcsphere,omitempty"`
	// Tile is set if and only if Role is RoleTile.
	Tile *Tile `json:"hctile,omitempty"`
	// Sound is set on a microphone's track, which has role audio.
	Sound *Sound `json:"hcau,omitempty"`
}

// Accessibility describes a feature embedded in a track, such as captions (MSF §5.2.44).
type Accessibility struct {
	Scheme string `json:"scheme"`
	Value  string `json:"value"`
}

// Buffers are a player's target buffers in milliseconds (MSF §5.2.9).
type Buffers struct {
	Target float64 `json:"target,omitempty"`
	Min    float64 `json:"min,omitempty"`
	Max    float64 `json:"max,omitempty"`
}

// Template describes a track whose media time is a linear function of the location (MSF §7.4.1). In
// the document it is an array of six values. Times are in milliseconds.
type Template struct {
	Media         float64   // media time of Location
	MediaStep     float64   // per Step
	Location      [2]uint64 // group and object
	Step          [2]uint64
	Wallclock     float64 // UNIX time of Location
	WallclockStep float64
}

// MarshalJSON writes the array.
func (t Template) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{t.Media, t.MediaStep, t.Location, t.Step, t.Wallclock, t.WallclockStep})
}

// UnmarshalJSON reads the array.
func (t *Template) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil // by convention
	}
	var list []json.RawMessage
	if err := json.Unmarshal(b, &list); err != nil {
		return &templateError{err}
	}
	into := []any{&t.Media, &t.MediaStep, &t.Location, &t.Step, &t.Wallclock, &t.WallclockStep}
	if len(list) != len(into) {
		return &templateError{fmt.Errorf("%d values, want %d", len(list), len(into))}
	}
	for i, v := range into {
		if err := json.Unmarshal(list[i], v); err != nil {
			return &templateError{fmt.Errorf("value %d: %w", i, err)}
		}
	}
	return nil
}

// templateError reports an invalid template. encoding/json does not name the field whose
// UnmarshalJSON failed.
type templateError struct{ err error }

func (e *templateError) Error() string { return e.err.Error() }

// InitData is an entry of the initialization data list (MSF §5.1.7).
type InitData struct {
	ID   string `json:"id"`
	Type string `json:"type"` // "inline", "track-property" or "object-property"
	Data string `json:"data"` // base64 if Type is "inline", otherwise a property type in hex
}

// Marshal returns c as a catalog object's payload, or the error that Parse would return.
func (c *Catalog) Marshal() ([]byte, error) {
	out := *c
	if out.Tracks == nil {
		out.Tracks = []Track{} // required by MSF even when empty
	}
	if err := out.Validate(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(&out)
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	if len(b) > MaxSize {
		return nil, fmt.Errorf("catalog: $: %d bytes, more than %d", len(b), MaxSize)
	}
	return b, nil
}

// ErrDelta is returned for a delta update, which only [Catalog.Apply] accepts.
var ErrDelta = errors.New("catalog: $: a delta update, not an independent catalog")

// Parse reads and validates an independent catalog. Errors name the faulty JSON path.
func Parse(b []byte) (*Catalog, error) {
	if len(b) > MaxSize {
		return nil, fmt.Errorf("catalog: $: %d bytes, more than %d", len(b), MaxSize)
	}
	// Arrays are decoded element by element, so errors can name an element's index.
	var doc struct {
		Version       *string            `json:"version"`
		GeneratedAt   int64              `json:"generatedAt"`
		IsComplete    bool               `json:"isComplete"`
		Tracks        *[]json.RawMessage `json:"tracks"`
		PublishTracks []json.RawMessage  `json:"publishTracks"`
		DeltaUpdate   json.RawMessage    `json:"deltaUpdate"`
		InitDataList  []json.RawMessage  `json:"initDataList"`
		Sealed        *Sealed            `json:"hcsealed"`
	}
	if err := decode(b, "$", &doc); err != nil {
		return nil, err
	}
	switch {
	case doc.DeltaUpdate != nil:
		return nil, ErrDelta
	case doc.Version == nil:
		return nil, errors.New("catalog: $.version: missing")
	case doc.Tracks == nil:
		return nil, errors.New("catalog: $.tracks: missing")
	}
	c := &Catalog{
		Version: *doc.Version, GeneratedAt: doc.GeneratedAt, IsComplete: doc.IsComplete, Sealed: doc.Sealed,
	}
	var err error
	if c.Tracks, err = decodeEach[Track](*doc.Tracks, "$.tracks", maxTracks); err != nil {
		return nil, err
	}
	if c.PublishTracks, err = decodeEach[Track](doc.PublishTracks, "$.publishTracks", maxTracks); err != nil {
		return nil, err
	}
	if c.InitDataList, err = decodeEach[InitData](doc.InitDataList, "$.initDataList", maxInitData); err != nil {
		return nil, err
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return c, nil
}

// Validate returns an error with the JSON path of the first violation of MSF or of our packaging.
func (c *Catalog) Validate() error {
	// MSF §5.1.1: a subscriber must not read a version it does not understand.
	if c.Version != Version && c.Version != "1" {
		return fmt.Errorf("catalog: $.version: %.40q is not supported; only %q is", c.Version, Version)
	}
	if len(c.Tracks) > maxTracks {
		return fmt.Errorf("catalog: $.tracks: %d tracks, more than %d", len(c.Tracks), maxTracks)
	}
	initIDs := make(map[string]bool, len(c.InitDataList))
	for i, d := range c.InitDataList {
		path := fmt.Sprintf("$.initDataList[%d]", i)
		if d.ID == "" {
			return fmt.Errorf("catalog: %s.id: missing", path)
		}
		if initIDs[d.ID] {
			return fmt.Errorf("catalog: %s.id: %.80q is taken by an earlier entry", path, d.ID)
		}
		switch d.Type {
		case "inline", "track-property", "object-property":
		default:
			return fmt.Errorf("catalog: %s.type: %.40q: want inline, track-property or object-property", path, d.Type)
		}
		initIDs[d.ID] = true
	}
	for _, list := range []struct {
		path   string
		tracks []Track
	}{{"$.tracks", c.Tracks}, {"$.publishTracks", c.PublishTracks}} {
		type fullName struct{ namespace, name string }
		seen := make(map[fullName]bool, len(list.tracks))
		for i := range list.tracks {
			t := &list.tracks[i]
			path := fmt.Sprintf("%s[%d]", list.path, i)
			if err := t.validate(path); err != nil {
				return err
			}
			if t.InitRef != "" && !initIDs[t.InitRef] {
				return fmt.Errorf("catalog: %s.initRef: no initDataList entry has the id %.80q", path, t.InitRef)
			}
			if seen[fullName{t.Namespace, t.Name}] {
				return fmt.Errorf("catalog: %s.name: %.80q is taken by an earlier track", path, t.Name)
			}
			seen[fullName{t.Namespace, t.Name}] = true
		}
	}
	return c.validateSphere()
}

func (t *Track) validate(path string) error {
	bad := func(field, format string, args ...any) error {
		return fmt.Errorf("catalog: %s.%s: "+format, append([]any{path, field}, args...)...)
	}
	for _, n := range []struct {
		field string
		value float64
	}{
		{"targetLatency", t.TargetLatency},
		{"framerate", t.Framerate},
		{"timescale", t.Timescale},
		{"bitrate", float64(t.Bitrate)},
		{"avgBitrate", float64(t.AvgBitrate)},
		{"maxGopDuration", t.MaxGOPDuration},
		{"maxGroupDuration", t.MaxGroupDuration},
		{"width", float64(t.Width)},
		{"height", float64(t.Height)},
		{"displayWidth", float64(t.DisplayWidth)},
		{"displayHeight", float64(t.DisplayHeight)},
		{"samplerate", float64(t.Samplerate)},
		{"trackDuration", float64(t.TrackDuration)},
	} {
		if n.value < 0 || math.IsNaN(n.value) || math.IsInf(n.value, 0) {
			return bad(n.field, "%v is negative or not finite", n.value)
		}
	}
	switch {
	case t.Name == "":
		return bad("name", "missing")
	case len(t.Namespace)+len(t.Name) > maxNameBytes:
		return bad("name", "namespace and name have %d bytes, more than %d", len(t.Namespace)+len(t.Name), maxNameBytes)
	case t.Packaging == "":
		return bad("packaging", "missing")
	case t.Packaging == PackagingEventTimeline && t.EventType == "":
		return bad("eventType", "missing, although packaging is %q", t.Packaging)
	case t.Packaging != PackagingEventTimeline && t.EventType != "":
		return bad("eventType", "not allowed with packaging %.40q", t.Packaging)
	case t.TargetLatency != 0 && t.Buffers != nil:
		return bad("buffers", "not allowed together with targetLatency")
	case t.IsLive && t.TrackDuration != 0:
		return bad("trackDuration", "not allowed on a live track")
	case strings.HasPrefix(t.Name, "tiles/") && t.Role == RoleVideo:
		return bad("role", "a tile must not be %q: players would treat it as a rendition", RoleVideo)
	case t.EncryptionScheme != "" && t.CipherSuite == "":
		return bad("cipherSuite", "missing, although encryptionScheme is %.40q", t.EncryptionScheme)
	case t.EncryptionScheme != "" && (t.Points != nil || t.Tile != nil || t.Sphere != nil || t.Sound != nil):
		return bad("encryptionScheme", "not allowed on a track with a description")
	case t.EncryptionScheme != "":
		return nil
	case t.Packaging == PackagingPoints && t.Points == nil:
		return bad("hcpf", "missing, although packaging is %q", t.Packaging)
	case t.Packaging != PackagingPoints && t.Points != nil:
		return bad("hcpf", "not allowed with packaging %.40q", t.Packaging)
	case t.Role == RoleTile && t.Tile == nil:
		return bad("hctile", "missing, although role is %q", t.Role)
	case t.Role != RoleTile && t.Tile != nil:
		return bad("hctile", "not allowed with role %.40q", t.Role)
	case t.Role != RoleAudio && t.Sound != nil:
		return bad("hcau", "not allowed with role %.40q", t.Role)
	case t.Points != nil:
		return t.Points.validate(path+".hcpf", t)
	case t.Sphere != nil:
		if err := t.Sphere.Validate(); err != nil {
			return fmt.Errorf("catalog: %s.hcsphere.%w", path, err)
		}
	case t.Tile != nil:
		if err := t.Tile.validate(); err != nil {
			return fmt.Errorf("catalog: %s.hctile.%w", path, err)
		}
	case t.Sound != nil:
		if err := t.Sound.validate(t); err != nil {
			return fmt.Errorf("catalog: %s.%w", path, err)
		}
	}
	return nil
}

// decode unmarshals a JSON value into v. Its errors name a JSON path.
func decode(b []byte, path string, v any) error {
	// encoding/json leaves v unchanged for null, which a catalog must not contain.
	if bytes.Equal(bytes.TrimSpace(b), []byte("null")) {
		return fmt.Errorf("catalog: %s: null", path)
	}
	err := json.Unmarshal(b, v)
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	var template *templateError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &template):
		return fmt.Errorf("catalog: %s.template: %w", path, err)
	case errors.As(err, &syntax):
		return fmt.Errorf("catalog: %s: byte %d: %w", path, syntax.Offset, err)
	case errors.As(err, &kind) && kind.Field != "":
		return fmt.Errorf("catalog: %s.%s: a JSON %s, want %s", path, kind.Field, kind.Value, jsonKind(kind.Type.Kind()))
	case errors.As(err, &kind):
		return fmt.Errorf("catalog: %s: a JSON %s, want %s", path, kind.Value, jsonKind(kind.Type.Kind()))
	}
	return fmt.Errorf("catalog: %s: %w", path, err)
}

func decodeEach[T any](list []json.RawMessage, path string, limit int) ([]T, error) {
	if len(list) > limit {
		return nil, fmt.Errorf("catalog: %s: %d entries, more than %d", path, len(list), limit)
	}
	out := make([]T, len(list))
	for i, raw := range list {
		if err := decode(raw, fmt.Sprintf("%s[%d]", path, i), &out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// jsonKind names the JSON type of a Go kind, for error messages.
func jsonKind(k reflect.Kind) string {
	switch k {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64, reflect.Uint16:
		return "a whole number in range"
	case reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "an array"
	default:
		return "an object"
	}
}
