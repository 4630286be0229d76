package recording

import (
	"errors"
	"fmt"
	"io"

	"holocast/internal/catalog"
)

// FirstCatalog reads r, the recording at path, and returns the first independent catalog that
// accept, if not nil, approves. If there is none, the error gives the reason, such as damage or a
// missing start.
func FirstCatalog(path string, r interface{ Next() (Object, error) }, accept func(*Object) bool) (*Object, error) {
	var damage error
	objects := 0
	for {
		o, err := r.Next()
		switch {
		case errors.Is(err, io.EOF) && damage != nil:
			return nil, fmt.Errorf("no catalog can be read: %w", damage)
		case errors.Is(err, io.EOF) && objects > 0:
			return nil, fmt.Errorf("recording %s has no catalog: its start was cut off, or its catalog track removed; "+
				"trim recordings with `mcap filter`, which keeps the catalog in the metadata", path)
		case errors.Is(err, io.EOF):
			return nil, fmt.Errorf("recording %s has no catalog: it is not a recording of a session", path)
		case err != nil:
			if damage == nil {
				damage = err
			}
		case o.Track.Name == catalog.TrackName && !o.EndOnly && o.ObjectID == 0 && (accept == nil || accept(&o)):
			return &o, nil
		default:
			objects++
		}
	}
}
