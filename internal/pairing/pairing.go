// Package pairing passes a session's address, with token and certificate hash, to a headset through
// a link short enough for a small QR code:
//
//	http://HOST:PORT/pair/CODE#KEY
//
// The relay keeps the address under CODE for [Lifetime], encrypted with KEY, which it never sees:
// browsers and clients do not send fragments. A listener on the plain HTTP connection learns nothing
// and cannot substitute another address.
package pairing

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Lifetime is a code's validity.
const Lifetime = 10 * time.Minute

// MaxBytes is the maximum size of an encrypted address.
const MaxBytes = 2048

// Path is the path prefix of codes on the relay's HTTP server.
const Path = "/pair/"

// Seal encrypts an address with a new key (AES-128-GCM). The nonce is zero, because no key is used
// twice.
func Seal(address string) (key string, sealed []byte, err error) {
	var k [16]byte
	_, _ = rand.Read(k[:]) // never fails
	sealed = gcm(k[:]).Seal(nil, nonce[:], []byte(address), nil)
	if len(sealed) > MaxBytes {
		return "", nil, fmt.Errorf("the address has %d bytes; pairing carries at most %d", len(address), MaxBytes-16)
	}
	return base64.RawURLEncoding.EncodeToString(k[:]), sealed, nil
}

// Open decrypts what Seal encrypted.
func Open(key string, sealed []byte) (address string, err error) {
	k, err := base64.RawURLEncoding.DecodeString(key)
	if err != nil || len(k) != 16 {
		return "", errors.New("the pairing link has no valid key after its #")
	}
	text, err := gcm(k).Open(nil, nonce[:], sealed, nil)
	if err != nil {
		return "", errors.New("the pairing link's key does not match its code")
	}
	return string(text), nil
}

var nonce [12]byte

func gcm(key []byte) cipher.AEAD {
	b, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // the key has 16 bytes
	}
	g, err := cipher.NewGCM(b)
	if err != nil {
		panic(err) // AES has blocks of 16 bytes
	}
	return g
}

// Deposit encrypts an address and stores it on the relay whose HTTP server is at base. It returns
// the path of the pairing link, including the fragment with the key.
func Deposit(ctx context.Context, base, address string) (path string, err error) {
	key, sealed, err := Seal(address)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+Path, bytes.NewReader(sealed))
	if err != nil {
		return "", err
	}
	const maxResponse = 256 // bytes
	code, err := do(req, maxResponse, http.StatusCreated, "the relay made no pairing code")
	if err != nil {
		return "", err
	}
	return Path + string(bytes.TrimSpace(code)) + "#" + key, nil
}

// Resolve returns the address behind a link.
func Resolve(ctx context.Context, link string) (address string, err error) {
	page, key, _ := strings.Cut(link, "#")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return "", err
	}
	sealed, err := do(req, MaxBytes, http.StatusOK, "the relay refuses the pairing code")
	if err != nil {
		return "", err
	}
	return Open(key, sealed)
}

// do sends a request and returns up to limit bytes of the response. For any status but want, the
// error begins with refusal.
func do(req *http.Request, limit int64, want int, refusal string) ([]byte, error) {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit))
	if err == nil && resp.StatusCode != want {
		err = fmt.Errorf("%s (%s): %s", refusal, resp.Status, bytes.TrimSpace(body))
	}
	return body, err
}
