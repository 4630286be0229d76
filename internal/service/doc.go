// Package service is what every long-running program does at its edges: it starts from a
// configuration file and flags, stops on signals, listens, serves metrics and health over
// HTTP, and keeps its certificate current.
package service
