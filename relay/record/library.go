package record

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holocast/internal/recording"
)

const (
	suffix  = ".mcap"
	partial = ".part" // follows suffix while a file is being written
	// timeFormat is the format of a recording's name: its start.
	timeFormat = "2006-01-02T15-04-05Z"
	// maxFolder limits the name of a session's folder, in bytes.
	maxFolder = 200
	// abandoned is the time after which an unlocked partial file counts as left by a crash.
	abandoned = 3 * time.Second
)

// folderOf returns the name of the folder with a session's recordings. sessionOf is its inverse.
func folderOf(session string) (string, error) {
	name := url.PathEscape(session)
	if strings.HasPrefix(name, ".") {
		name = "%2E" + name[1:]
	}
	if name == "" || len(name) > maxFolder {
		return "", fmt.Errorf("the name %.80q cannot name a folder", session)
	}
	return name, nil
}

func sessionOf(folder string) (session string, ok bool) {
	session, err := url.PathUnescape(folder)
	if err != nil {
		return "", false
	}
	again, err := folderOf(session)
	return session, err == nil && again == folder
}

// entry is a file of the directory.
type entry struct {
	path    string
	session string
	at      string // name of the recording, as in timeFormat
	size    int64
	changed time.Time
	partial bool
}

// scan lists the recordings in a directory, sorted by their start.
func scan(dir string) (list []entry, err error) {
	folders, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, folder := range folders {
		session, ok := sessionOf(folder.Name())
		if !ok || !folder.IsDir() {
			continue
		}
		files, err := os.ReadDir(filepath.Join(dir, folder.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			name, isPartial := strings.CutSuffix(f.Name(), partial)
			at, ok := strings.CutSuffix(name, suffix)
			if _, err := time.Parse(timeFormat, at); !ok || err != nil {
				continue
			}
			info, err := f.Info()
			if err != nil || !info.Mode().IsRegular() {
				continue
			}
			list = append(list, entry{
				path: filepath.Join(dir, folder.Name(), f.Name()), session: session, at: at,
				size: info.Size(), changed: info.ModTime(), partial: isPartial,
			})
		}
	}
	slices.SortStableFunc(list, func(a, b entry) int { return strings.Compare(a.at, b.at) })
	return list, nil
}

// create creates the partial file of a recording of a session that begins at now, and locks it.
func create(dir, session string, now time.Time) (*os.File, error) {
	folder, err := folderOf(session)
	if err != nil {
		return nil, err
	}
	folder = filepath.Join(dir, folder)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	for ; ; now = now.Add(time.Second) {
		finished := filepath.Join(folder, now.UTC().Format(timeFormat)+suffix)
		if _, err := os.Lstat(finished); err == nil {
			continue
		}
		f, err := os.OpenFile(finished+partial, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := lock(f); err != nil {
			return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
		return f, nil
	}
}

// finish gives a partial file its final name.
func finish(path string) error { return os.Rename(path, strings.TrimSuffix(path, partial)) }

// smallFile is the size, in bytes, up to which a recovered file is checked for objects.
const smallFile = 1 << 20

// recoverPartial finishes a partial file that no process writes any more, or removes it if it is empty.
// recovered is false if a process writes it or it was empty.
func recoverPartial(e entry) (recovered bool, err error) {
	f, err := os.OpenFile(e.path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // its writer has finished it
	}
	if err != nil {
		return false, err
	}
	locked := lock(f) == nil
	if err := f.Close(); err != nil || !locked {
		return false, err
	}
	if e.size <= smallFile {
		r, err := recording.Open(e.path)
		empty := err != nil || r.Info.Records == 0
		if err == nil {
			_ = r.Close() // read-only
		}
		if empty {
			return false, remove(e.path)
		}
	}
	err = finish(e.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// remove deletes a recording, and its folder if that is empty.
func remove(path string) error {
	err := os.Remove(path)
	_ = os.Remove(filepath.Dir(path)) // fails if it is not empty
	return err
}
