// Package secretfile reads files with secrets: keys and tokens.
package secretfile

import (
	"crypto/tls"
	"fmt"
	"io"
	"os"
	"runtime"
)

// MaxSize limits a file, in bytes.
const MaxSize = 1 << 20

// Read returns the content of a file. It refuses files larger than MaxSize, and those that users other than the
// owner and its group may read, or other users than the owner may write. Errors name the file.
func Read(path string) ([]byte, error) {
	b, exposed, err := Load(path)
	if err == nil && exposed != nil {
		return nil, exposed
	}
	return b, err
}

// Load is Read for files that need not be secret, such as public keys: exposed is the error with which Read
// refuses the file for its mode.
func Load(path string) (b []byte, exposed, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }() // read-only
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	b, err = io.ReadAll(io.LimitReader(f, MaxSize+1))
	switch {
	case err != nil:
		return nil, nil, err
	case len(b) > MaxSize:
		return nil, nil, fmt.Errorf("%s has more than %d bytes", path, MaxSize)
	}
	// Pipes have no meaningful mode, and neither has any file on Windows.
	if mode := info.Mode(); mode.IsRegular() && mode.Perm()&0o027 != 0 && runtime.GOOS != "windows" {
		exposed = fmt.Errorf("%s has mode %04o, which lets other users read or write the secret; run chmod 600 %[1]s",
			path, mode.Perm())
	}
	return b, exposed, nil
}

// KeyPair reads a TLS certificate chain and its private key in PEM, the key as Read does.
func KeyPair(certificate, key string) (tls.Certificate, error) {
	chain, _, err := Load(certificate)
	if err != nil {
		return tls.Certificate{}, err
	}
	private, err := Read(key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(chain, private)
}
