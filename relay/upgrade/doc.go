// Package upgrade replaces a running process by a new one of the same program, which may be
// another version, without giving up what it serves: the new process is started with files of
// the old one and what they are for, and the old one learns when the new one is ready, or that
// it failed. What both do with that is theirs.
package upgrade
