package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/relay/auth"
)

// serverName is the name in the certificates of the cluster port.
const serverName = "relay.cluster.holocast"

// tokenType marks the tokens of relays in SETUP (draft-ietf-moq-transport-18 §10.2.2).
const tokenType = 0x686f6c6f

// tokenLife is the validity of a token before and after it is minted, and thus how far the clocks of relays
// may differ. The session may outlive it. It may be long, since only the process that the token names
// accepts and sees it.
const tokenLife = 24 * time.Hour

// secret holds the keys derived from a cluster's secret.
type secret struct {
	cluster string
	mac     []byte // signs messages
	token   auth.Key
	issuer  ed25519.PrivateKey // issues the certificates of the cluster port
}

// readSecret reads a file with a shared secret, as "relay key --algorithm HS256" writes it.
func readSecret(ctx context.Context, cluster, file string) (*secret, error) {
	keys, err := auth.ReadKeys(ctx, file)
	if err != nil {
		return nil, err
	}
	raw, ok := keys[0].Key.([]byte)
	if !ok || len(keys) != 1 {
		return nil, fmt.Errorf("%s is not a shared secret; generate one with relay key --algorithm HS256", file)
	}
	return newSecret(cluster, raw)
}

func newSecret(cluster string, raw []byte) (*secret, error) {
	s := &secret{cluster: cluster}
	derive := func(use string) (key []byte, err error) {
		return hkdf.Key(sha256.New, raw, []byte(cluster), "holocast cluster "+use, 32)
	}
	var err error
	if s.mac, err = derive("messages"); err != nil {
		return nil, err
	}
	seed, err := derive("certificates")
	if err != nil {
		return nil, err
	}
	s.issuer = ed25519.NewKeyFromSeed(seed)
	token, err := derive("tokens")
	if err != nil {
		return nil, err
	}
	s.token, err = auth.Secret(token)
	return s, err
}

// macSize is the size of a message's signature in bytes.
const macSize = 16

func (s *secret) sum(b []byte) []byte {
	h := hmac.New(sha256.New, s.mac)
	_, _ = h.Write(b)
	return h.Sum(nil)[:macSize]
}

// seal appends a signature to a message.
func (s *secret) seal(b []byte) []byte { return append(b, s.sum(b)...) }

var errSignature = errors.New("the message is not signed with this cluster's secret")

// open verifies and removes the signature.
func (s *secret) open(b []byte) ([]byte, error) {
	if len(b) < macSize {
		return nil, errSignature
	}
	text, sum := b[:len(b)-macSize], b[len(b)-macSize:]
	if !hmac.Equal(sum, s.sum(text)) {
		return nil, errSignature
	}
	return text, nil
}

// mint returns a token for a session of the relay named name with the relay whose ID is to.
func (s *secret) mint(id, name, to string, now time.Time) (wire.Token, error) {
	raw, _, err := auth.Mint(s.token, auth.Claims{Claims: jwt.Claims{
		Issuer: s.cluster, Subject: name, ID: id, Audience: jwt.Audience{to}, Expiry: jwt.NewNumericDate(now.Add(tokenLife)),
	}}, now.Add(-tokenLife))
	return wire.Token{AliasType: wire.TokenUseValue, Type: tokenType, Value: []byte(raw)}, err
}

// verify returns the name of the relay that opened a session, or "" if the session is not a relay's. id
// is this relay's.
func (s *secret) verify(tokens []wire.Token, id string, now time.Time) (name string, err error) {
	for _, t := range tokens {
		if t.Type != tokenType || t.AliasType != wire.TokenUseValue && t.AliasType != wire.TokenRegister {
			continue
		}
		c, err := auth.Verify(string(t.Value), []auth.Key{s.token}, s.cluster, id, now)
		switch {
		case errors.Is(err, auth.ErrUnknown):
			err = errors.New("the relay does not have the secret of this cluster")
		case errors.Is(err, auth.ErrOther):
			err = errors.New("the relay wants to reach another relay or cluster: check cluster.advertise")
		case err == nil && c.ID == id:
			err = errors.New("the relay has reached itself: check cluster.advertise")
		}
		if err != nil {
			return "", &moqt.SessionError{Code: wire.Unauthorized, Reason: err.Error()}
		}
		return c.Subject, nil
	}
	return "", nil
}

// yield delays connections of a relay to those with smaller IDs. If two
// relays dial each other at once, each NATS server keeps its own connection and closes the other's, so
// both are lost. Without the delay, distant relays would repeat this in step for many seconds. It
// exceeds the round-trip times on Earth.
const yield = 500 * time.Millisecond

// tls returns the configuration of both ends of the cluster port for the relay with that ID: each proves
// by its certificate that it has the secret.
func (s *secret) tls(id string, now time.Time) (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Holocast cluster " + s.cluster},
		NotBefore: now.Add(-certificateLife), NotAfter: now.Add(certificateLife),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, s.issuer.Public(), s.issuer)
	if err != nil {
		return nil, err
	}
	root, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	leaf := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: serverName, SerialNumber: id}, DNSNames: []string{serverName},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if der, err = x509.CreateCertificate(rand.Reader, leaf, root, &key.PublicKey, s.issuer); err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(root)
	c := &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: serverName, RootCAs: pool, ClientCAs: pool,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	}
	accepting := c.Clone()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return accepting, nil }
	c.VerifyConnection = func(state tls.ConnectionState) error { // of a dialed connection
		if id > state.PeerCertificates[0].Subject.SerialNumber {
			time.Sleep(yield)
		}
		return nil
	}
	return c, nil
}

// certificateLife is the validity of a certificate before and after its creation. It exceeds the life of
// a process and the errors of clocks, since the secret, not the date, decides who is a relay.
const certificateLife = 10 * 365 * 24 * time.Hour
