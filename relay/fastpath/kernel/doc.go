// Package kernel is the kernel part of the relay's fast path: eBPF programs that send viewers
// copies of publishers' datagram objects, before user space sees them (Pfeifer, "eBPF-Assisted
// Relays for Multimedia Streaming", chapter 3). Unlike in Pfeifer's relay, packets are encrypted on
// both sides.
//
//	publisher ─► publisher_ingress ─► stack ─► quic-go ─► origin
//	               │ open, find the track, seal for each viewer
//	               └─► viewer_egress ─► viewer
//
// A [Forwarder] holds the programs, the memory they share with user space, and the ring that reports
// the packets sent. Nothing is pinned, so everything ends with the process except clsact filters.
// Their programs stop when the lease that user space renews expires.
package kernel
