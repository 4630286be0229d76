package export

import (
	"fmt"

	"holocast/internal/catalog"
	"holocast/internal/moqt"
	"holocast/internal/recording"
)

// openCatalog opens a recording and reads up to its first catalog, whose track is root. The caller
// closes r.
func openCatalog(path string) (r *recording.Reader, root moqt.TrackName, c *catalog.Catalog, err error) {
	if r, err = recording.Open(path); err != nil {
		return nil, root, nil, err
	}
	o, err := recording.FirstCatalog(path, r, nil)
	if err != nil {
		_ = r.Close() // read-only
		return nil, root, nil, err
	}
	var track moqt.Properties
	for _, t := range r.Info.Tracks {
		if t.Track.String() == o.Track.String() {
			track = t.Properties
		}
	}
	var first catalog.Reader
	if c, err = first.Read(o.Group, o.Payload, moqt.Properties(o.Properties), track); err != nil {
		_ = r.Close() // read-only
		return nil, root, nil, fmt.Errorf("recording %s: %w", path, err)
	}
	return r, o.Track, c, nil
}
