//go:build !linux

package moqt

import "syscall"

// bind does nothing: the source address selects the interface.
func (Path) bind(syscall.RawConn) error { return nil }
