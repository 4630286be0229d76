// Package kernel is the kernel side of the relay's fast path: programs that send viewers
// copies of the objects that publishers send as datagrams, before user space has seen
// them, as in Pfeifer, "eBPF-Assisted Relays for Multimedia Streaming", chapter 3. Unlike
// the relay described there, packets stay encrypted on both sides.
//
//	publisher ─► publisher_ingress ─► stack ─► quic-go ─► origin
//	               │ open, find the track, seal for each viewer
//	               └─► viewer_egress ─► viewer
//
// A [Kernel] holds the programs, what they share with user space, and the ring that tells
// what they sent. Nothing is pinned: with the process everything goes. Where the kernel
// attaches by filters, which stay, the programs stop by themselves when the lease that
// user space renews runs out.
package kernel
