// Package udpio reads and writes UDP sockets in large batches, for quic-go: fewer system
// calls, none of which costs the Go scheduler its processor, and datagrams of one peer
// received together where the kernel can do that (UDP_GRO).
package udpio
