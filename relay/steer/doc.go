// Package steer has the packets of one UDP address received by several sockets, each packet
// by the one that owns its connection: one socket a processor, and those of two processes
// while a relay is upgraded.
//
// The first byte of a connection ID that the relay chooses is the slot of a socket. A program
// in the kernel (SO_ATTACH_REUSEPORT_EBPF) reads it and selects that socket; packets of no
// connection go to the sockets that take new ones, spread by the client's address. That a slot
// is readable tells an observer no more than which connections share a processor.
//
// The last byte of a connection ID is a tag of the others, by a key. Each socket has a filter
// (classic BPF, which takes no privilege): a datagram that has neither an ID with its tag nor the
// form of a first packet is dropped before it is queued, so that junk wakes nobody. What the
// kernel has joined is judged by its first packet. Stateless resets (RFC 9000 §10.3) of clients are
// dropped as well, as they are made to look like junk: sessions of those end by their timeout.
//
// Of first packets the filter lets a share pass (Group.Pass), where more come than can be answered: all of
// a connection's or none, as the client's ID and a number say that changes from call to call.
//
// A client that changes its address stays with its socket, which the kernel's own choice among
// sockets of an address (SO_REUSEPORT), by addresses and ports, would not do.
package steer
