// Package statefile stores a program's state in a file. Writes are atomic and add a checksum, and only
// one process at a time can use the file.
package statefile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// format is the version of the envelope.
const format = 1

// document is the file's content.
type document struct {
	Format int             `json:"format"`
	SHA256 string          `json:"sha256"` // of State as written, hexadecimal
	State  json.RawMessage `json:"state"`
}

// File is a state file locked by this process.
type File struct {
	path string
	lock *os.File
}

// Errors of Load.
var (
	// ErrDamaged is returned for a file that is truncated or was changed. The file was renamed.
	ErrDamaged = errors.New("state file is damaged")
	// ErrNewer is returned for a file written by a later version of the program.
	ErrNewer = errors.New("state file was written by a later version of this program")
)

// Open locks the state file at path, which need not exist. It fails if another process holds the lock.
// Errors name the file.
func Open(path string) (*File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, fmt.Errorf("state file: %w", err)
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state file: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("state file %s is in use by another process", path)
		}
		return nil, fmt.Errorf("state file %s: lock: %w", path, err)
	}
	return &File{path: path, lock: lock}, nil
}

// Close releases the lock.
func (f *File) Close() error { return f.lock.Close() }

// Load reads the state into out and reports whether there was one. On ErrDamaged it has renamed the
// file to the name in the error.
func (f *File) Load(out any) (bool, error) {
	b, err := os.ReadFile(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("state file: %w", err)
	}
	why := decode(b, out)
	if why == nil {
		return true, nil
	}
	if errors.Is(why, ErrNewer) {
		return false, fmt.Errorf("%s: %w", f.path, why)
	}
	return false, f.SetAside(why)
}

// SetAside renames the file and returns an error that wraps ErrDamaged and names the reason and the
// new name.
func (f *File) SetAside(why error) error {
	to := f.path + ".damaged-" + time.Now().UTC().Format("20060102T150405.000")
	if err := os.Rename(f.path, to); err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	return fmt.Errorf("%w (%w) and was moved to %s", ErrDamaged, why, to)
}

func decode(b []byte, out any) error {
	var d document
	if err := json.Unmarshal(b, &d); err != nil {
		return err
	}
	if d.Format > format {
		return ErrNewer
	}
	if d.Format != format || d.SHA256 != checksum(d.State) {
		return errors.New("wrong checksum")
	}
	return json.Unmarshal(d.State, out)
}

func checksum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// Save writes the state to a temporary file, syncs and renames it, and syncs the directory. A crash
// leaves the old or the new state.
func (f *File) Save(state any) (err error) {
	s, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	b, err := json.Marshal(document{Format: format, SHA256: checksum(s), State: s})
	if err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	temp := f.path + ".new"
	if err := write(temp, bytes.NewReader(b)); err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	if err := os.Rename(temp, f.path); err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	if err := syncDir(filepath.Dir(f.path)); err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	return nil
}

func write(path string, from *bytes.Reader) error {
	w, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = from.WriteTo(w)
	if err == nil {
		err = w.Sync()
	}
	if e := w.Close(); err == nil {
		err = e
	}
	if err != nil {
		_ = os.Remove(path)
	}
	return err
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
