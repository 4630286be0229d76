// Package service holds the common code of all long-running programs: configuration file and flags,
// signals, listeners, metrics and health over HTTP, and certificates.
package service
