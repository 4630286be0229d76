package secureobjects

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"holocast/internal/secretfile"
)

// KeyVariable is the environment variable that holds a viewer's keys, in the form of [Keys.Text], or
// @FILE to read them from a key file.
const KeyVariable = "HOLOCAST_E2E_KEY"

// KeyUsage is the help text of viewers' key flags.
const KeyUsage = "key file of an encrypted session (default the keys in $" + KeyVariable + ", or @FILE there)"

// Bounds of a key file. A secret's length is in bytes.
const (
	MaxID      = 1<<24 - 1
	secretSize = 32
	minSecret  = 16
	maxSecret  = 64
	maxKeys    = 64
)

// Key is a secret shared by a publisher and its viewers.
type Key struct {
	ID     uint32 // 1 to MaxID
	Secret []byte // 16 to 64 bytes
}

// Keys are a session's keys, oldest first. The publisher seals with the last; viewers open with any.
type Keys struct{ list []Key }

// Newest returns the last key.
func (k *Keys) Newest() Key { return k.list[len(k.list)-1] }

// Secret returns the secret of key id.
func (k *Keys) Secret(id uint32) (secret []byte, ok bool) {
	if k == nil {
		return nil, false
	}
	for _, key := range k.list {
		if key.ID == id {
			return key.Secret, true
		}
	}
	return nil, false
}

// Rotate appends a key with the next ID and a random secret. Of more than 64 keys it forgets the
// oldest.
func (k *Keys) Rotate() error {
	next := Key{ID: 1, Secret: make([]byte, secretSize)}
	for _, key := range k.list {
		next.ID = max(next.ID, key.ID+1)
	}
	if next.ID > MaxID {
		return fmt.Errorf("key IDs are used up: %d is the last", MaxID)
	}
	_, _ = rand.Read(next.Secret) // never fails
	k.list = append(k.list, next)
	if len(k.list) > maxKeys {
		k.list = slices.Delete(k.list, 0, len(k.list)-maxKeys)
	}
	return nil
}

// Text returns the keys for links and environment variables: ID.SECRET, comma-separated, secrets in
// unpadded base64url.
func (k *Keys) Text() string {
	parts := make([]string, len(k.list))
	for i, key := range k.list {
		parts[i] = fmt.Sprintf("%d.%s", key.ID, base64.RawURLEncoding.EncodeToString(key.Secret))
	}
	return strings.Join(parts, ",")
}

// ParseKeys reads the form of [Keys.Text]. Its errors never contain secrets.
func ParseKeys(text string) (*Keys, error) {
	var k Keys
	for i, part := range strings.Split(text, ",") {
		id, secret, _ := strings.Cut(strings.TrimSpace(part), ".")
		if err := k.add(id, secret); err != nil {
			return nil, fmt.Errorf("key %d: %w", i+1, err)
		}
	}
	return &k, nil
}

func (k *Keys) add(id, secret string) error {
	n, err := strconv.ParseUint(id, 10, 32)
	if err != nil || n == 0 || n > MaxID {
		return fmt.Errorf("the ID is not a number from 1 to %d", MaxID)
	}
	b, err := base64.RawURLEncoding.DecodeString(secret)
	if err != nil || len(b) < minSecret || len(b) > maxSecret {
		return fmt.Errorf("the secret of key %d is not %d to %d bytes of base64url; make keys with holocast key", n,
			minSecret, maxSecret)
	}
	if _, again := k.Secret(uint32(n)); again {
		return fmt.Errorf("two keys have the ID %d", n)
	}
	if len(k.list) == maxKeys {
		return fmt.Errorf("more than %d keys", maxKeys)
	}
	k.list = append(k.list, Key{uint32(n), b})
	return nil
}

// fileHeader begins a key file.
const fileHeader = "# Keys of an encrypted session: ID and secret, newest last. Everyone with this file can watch.\n"

// ReadFile reads a key file. It refuses files that other users can read.
func ReadFile(path string) (*Keys, error) {
	b, err := secretfile.Read(path)
	if err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	var k Keys
	scanner := bufio.NewScanner(bytes.NewReader(b))
	for line := 1; scanner.Scan(); line++ {
		fields := strings.Fields(scanner.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) != 2 {
			return nil, fmt.Errorf("key file %s:%d: want an ID and a secret", path, line)
		}
		if err := k.add(fields[0], fields[1]); err != nil {
			return nil, fmt.Errorf("key file %s:%d: %w", path, line, err)
		}
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("key file %s: %w", path, err)
	}
	if len(k.list) == 0 {
		return nil, fmt.Errorf("key file %s: it has no key; make one with holocast key", path)
	}
	return &k, nil
}

// WriteFile replaces a key file atomically; only its owner may read it.
func (k *Keys) WriteFile(path string) error {
	var b bytes.Buffer
	b.WriteString(fileHeader)
	for _, key := range k.list {
		fmt.Fprintf(&b, "%d %s\n", key.ID, base64.RawURLEncoding.EncodeToString(key.Secret))
	}
	next := path + ".new"
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("key file: %w", err)
	}
	_, err = f.Write(b.Bytes())
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return fmt.Errorf("key file: %w", errors.Join(err, os.Remove(next)))
	}
	return nil
}

// CreateFile makes a key file with one key. It refuses to replace a file.
func CreateFile(path string) (*Keys, error) {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("key file %s exists; add a key to it with --rotate", path)
	}
	var k Keys
	if err := k.Rotate(); err != nil {
		return nil, err
	}
	return &k, k.WriteFile(path)
}
