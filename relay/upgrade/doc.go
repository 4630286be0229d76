// Package upgrade replaces a running process with a new process of the same program, possibly of
// another version, without interrupting service. The old process passes open files and state to the
// new one when it starts it, and learns when it is ready or has failed. The program decides what to do
// with the files and the state.
package upgrade
