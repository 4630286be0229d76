//go:build linux && race

package main

func init() { buildFlags = append(buildFlags, "-race") }
