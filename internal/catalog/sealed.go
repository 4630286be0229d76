package catalog

import "strings"

// Sealed is the JSON object in the field "hcsealed" of an encrypted session's catalog: the session's
// real catalog as an object of the catalog track, encrypted (docs/spec/encryption.md).
type Sealed struct {
	KeyID     uint64   `json:"keyId"`
	Namespace []string `json:"namespace"` // that the catalog was sealed for
	Group     uint64   `json:"group"`     // its location and priority
	Object    uint64   `json:"object"`
	Priority  int      `json:"priority"`
	Data      []byte   `json:"data"` // base64
}

// Encrypted reports whether the catalog is that of an encrypted session, without its descriptions.
func (c *Catalog) Encrypted() bool { return c.Sealed != nil }

// Shell returns the catalog that relays and recorders see: the tracks of namespace with the encryption
// scheme and cipher suite, and without what describes their content. Tracks of other namespaces are
// not encrypted.
func (c *Catalog) Shell(namespace []string, scheme, suite string) *Catalog {
	out := &Catalog{Version: c.Version, GeneratedAt: c.GeneratedAt, IsComplete: c.IsComplete}
	for _, t := range c.Tracks {
		if t.Namespace != "" && t.Namespace != strings.Join(namespace, "/") {
			out.Tracks = append(out.Tracks, t)
			continue
		}
		out.Tracks = append(out.Tracks, Track{
			Namespace: t.Namespace, Name: t.Name, Packaging: t.Packaging, EventType: t.EventType, IsLive: t.IsLive,
			Role: t.Role, MimeType: t.MimeType, RenderGroup: t.RenderGroup, AltGroup: t.AltGroup, Depends: t.Depends,
			TargetLatency: t.TargetLatency, Buffers: t.Buffers, TrackDuration: t.TrackDuration, Template: t.Template,
			EncryptionScheme: scheme, CipherSuite: suite,
		})
	}
	return out
}

// Retime takes over what a replay changed in the shell of its catalog: which tracks there are, and
// their times.
func (c *Catalog) Retime(shell *Catalog) {
	times := map[string]*Track{}
	for i := range shell.Tracks {
		times[shell.Tracks[i].Namespace+"\x00"+shell.Tracks[i].Name] = &shell.Tracks[i]
	}
	kept := c.Tracks[:0]
	for _, t := range c.Tracks {
		s := times[t.Namespace+"\x00"+t.Name]
		if s == nil {
			continue
		}
		t.IsLive, t.TargetLatency, t.Buffers = s.IsLive, s.TargetLatency, s.Buffers
		t.TrackDuration, t.Template = s.TrackDuration, s.Template
		kept = append(kept, t)
	}
	c.Tracks = kept
}
