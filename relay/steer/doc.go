// Package steer lets several sockets share one UDP address and steers each packet to the socket that
// owns its connection. There is one socket per CPU; during an upgrade two processes share the address.
//
// The first byte of the relay's connection IDs is a slot, which identifies a socket. An eBPF
// program (SO_ATTACH_REUSEPORT_EBPF) selects the socket by that byte. Packets without a known
// connection go to the sockets that accept new ones, spread by client address. An observer learns
// from the slot only which connections share a socket.
//
// The last byte of a connection ID is a keyed tag of the other bytes. Each socket has a classic BPF
// filter, which needs no privileges. It drops datagrams before they are queued unless they have a
// correctly tagged ID or the form of a connection's first packet, so that junk does not wake the
// process. Datagrams merged by GRO are judged by the first one. Stateless resets from clients (RFC 9000
// §10.3) resemble junk and are dropped too; those sessions end by timeout.
//
// When more first packets arrive than can be answered, the filter passes a share of them (Group.Pass).
// It passes all of a connection's packets or none, selected by the client's connection ID and a salt
// that changes with each call.
//
// A client that changes its address stays with its socket. This would not be so with the kernel's
// default selection for SO_REUSEPORT, which uses addresses and ports.
package steer
