// Package bpf is the kernel part of the duplication edge pair of Qian et al., "Enabling eBPF-based
// packet duplication for robust volumetric video streaming", section III-B: the eBPF programs in C,
// and the code that loads, attaches, pins and reads them.
//
// A Sender duplicates packets to selected destinations over up to MaxPaths paths in a TC program.
// Policies (the paths of a destination) come from signalling packets, which the program verifies
// itself, or from SetPolicy. A Receiver, a native XDP program, passes the first replica of each
// packet and drops the others.
//
// All state is in pinned maps, and attachments outlive the process, so duplication and elimination
// continue without it. Opening again takes over the pinned state and replaces the programs in their
// links without losing a packet.
//
// Traffic that is not configured passes unchanged, and so do packets that the programs cannot
// handle. Stats counts each such case.
package bpf
