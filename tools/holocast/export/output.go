package export

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
)

// Kind is a kind of export that fills a folder.
type Kind struct {
	// globs find candidate files, relative to the folder; names matches the exported files among
	// them.
	globs []string
	names *regexp.Regexp
}

// Kinds of exports into folders.
var (
	PLYFiles = Kind{
		[]string{"frame-*.ply", "camera-*/frame-*.ply"},
		regexp.MustCompile(`^(camera-\d+/)?frame-\d{6,}\.ply$`),
	}
	K4AFiles  = Kind{[]string{"camera-*.mkv"}, regexp.MustCompile(`^camera-\d+\.mkv$`)}
	RGBDFiles = Kind{
		[]string{"camera-*/color/*.png", "camera-*/depth/*.png", "camera-*/*.json", "camera-*/*.log", "camera-*/*.txt"},
		regexp.MustCompile(`^camera-\d+/((color|depth)/\d{6,}\.png|` +
			`(intrinsic|trajectory)\.json|trajectory\.log|(associations|groundtruth)\.txt)$`),
	}
)

// find returns the files of an earlier export in a folder, relative to the folder.
func (k Kind) find(dir string) ([]string, error) {
	var found []string
	for _, glob := range k.globs {
		list, err := fs.Glob(os.DirFS(dir), glob)
		if err != nil {
			return nil, err
		}
		found = append(found, slices.DeleteFunc(list, func(s string) bool { return !k.names.MatchString(s) })...)
	}
	return found, nil
}

// Unused returns an error if a folder holds files of an earlier export.
func (k Kind) Unused(dir string) error {
	found, err := k.find(dir)
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("%s holds %d files of an earlier export, such as %s; use another folder, or --force to delete them",
			dir, len(found), found[0])
	}
	return err
}

// prepare creates the folder. If force is set, it deletes the files of an earlier export and no
// others.
func (k Kind) prepare(dir string, force bool) error {
	if !force {
		if err := k.Unused(dir); err != nil {
			return err
		}
		return os.MkdirAll(dir, 0o755)
	}
	found, err := k.find(dir)
	if err != nil {
		return err
	}
	for _, name := range found {
		if err := os.Remove(filepath.Join(dir, filepath.FromSlash(name))); err != nil {
			return err
		}
		for parent := path.Dir(name); parent != "."; parent = path.Dir(parent) {
			_ = os.Remove(filepath.Join(dir, filepath.FromSlash(parent))) // if empty
		}
	}
	return os.MkdirAll(dir, 0o755)
}

// UnusedFile returns an error if the file to write is the recording itself, a folder or
// a device or, unless force is set, if it exists.
func UnusedFile(recording, out string, force bool) error {
	to, err := os.Stat(out)
	if err != nil {
		return nil //nolint:nilerr // created later, which reports other errors
	}
	if from, err := os.Stat(recording); err == nil && os.SameFile(from, to) {
		return fmt.Errorf("%s is the recording itself", out)
	}
	if !to.Mode().IsRegular() {
		return fmt.Errorf("%s is a folder or a device; use the name of a file", out)
	}
	if !force {
		return fmt.Errorf("%s exists; use another name, or --force to replace it", out)
	}
	return nil
}

// first returns the first of joined errors, since on a full disk the others only repeat it.
func first(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return first(joined.Unwrap()[0])
	}
	return err
}

// create calls write with a new file, which it moves to path at the end. It removes the file if write fails.
func create(path string, write func(*os.File) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	partial := path + ".partial"
	f, err := os.Create(partial)
	if err != nil {
		return err
	}
	if err = first(errors.Join(write(f), f.Close())); err == nil {
		err = os.Rename(partial, path)
	}
	if err != nil {
		_ = os.Remove(partial)
	}
	return err
}
