package recording

// Source is a recording, or other media that can be read like one. Next returns objects in order of arrival,
// or io.EOF at the end.
type Source interface {
	Next() (Object, error)
	Chunks(visit func(offset int64, objects []Object) error) error
	ReadChunk(offset int64) ([]Object, error)
	Close() error
}

// OpenSource opens a recording.
func OpenSource(path string) (Source, Info, error) {
	r, err := Open(path)
	if err != nil {
		return nil, Info{}, err
	}
	return r, r.Info, nil
}
