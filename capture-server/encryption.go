package main

import (
	"errors"

	"holocast/internal/secureobjects"
)

// encryption encrypts the session; nil leaves it in the clear.
type encryption struct{ *secureobjects.Publisher }

// newEncryption reads the key file of setting e2eKey. It returns nil without one.
func newEncryption(path string) (*encryption, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // nil is a valid encryption
	}
	keys, err := secureobjects.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return &encryption{secureobjects.NewPublisher(keys)}, nil
}

// publisher returns the session's encryption, or nil.
func (e *encryption) publisher() *secureobjects.Publisher {
	if e == nil {
		return nil
	}
	return e.Publisher
}

// reload reads the key file again and encrypts later objects with its newest key. rotated is called
// after a change. Turning encryption on or off needs a restart.
func (e *encryption) reload(path string, rotated func()) error {
	if (e == nil) != (path == "") {
		return errors.New("e2eKey: encryption begins and ends with a restart")
	}
	if e == nil {
		return nil
	}
	keys, err := secureobjects.ReadFile(path)
	if err != nil {
		return err
	}
	if uint32(e.KeyID()>>24) == keys.Newest().ID {
		return nil
	}
	e.Replace(keys)
	rotated()
	return nil
}
