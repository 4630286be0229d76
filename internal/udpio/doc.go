// Package udpio reads and writes UDP sockets in large batches for quic-go. It saves system calls,
// hides them from the Go scheduler, and receives merged datagrams of one peer if the kernel
// supports that (UDP_GRO).
package udpio
