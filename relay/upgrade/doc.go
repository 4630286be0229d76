// Package upgrade replaces a running process with a new process of the same program, possibly of
// another version, without interrupting service. The old process starts the new one, passes it open
// files and state, and learns when it is ready or has failed. The program decides what to do with the
// files and the state.
package upgrade

// Commands for Control.
const (
	Upgrade = "upgrade" // answered with "pid N" of the new process
	Drain   = "drain"
	API     = "api" // answered with "ok"; the connection then carries HTTP
)
