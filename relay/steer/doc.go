// Package steer has the packets of one UDP address received by several sockets, each packet
// by the one that owns its connection: one socket a processor, and those of two processes
// while a relay is upgraded.
//
// The first byte of a connection ID that the relay chooses is the slot of a socket. A program
// in the kernel (SO_ATTACH_REUSEPORT_EBPF) reads it and selects that socket; packets of no
// connection go to the sockets that take new ones, spread by the client's address. That a slot
// is readable tells an observer no more than which connections share a processor.
//
// A client that changes its address stays with its socket, which the kernel's own choice among
// sockets of an address (SO_REUSEPORT), by addresses and ports, would not do.
package steer
