// Package bpf is the kernel side of the duplication edge pair of Qian et al.,
// "Enabling eBPF-based packet duplication for robust volumetric video streaming",
// section III-B: the programs, in C, and what loads, attaches, pins and reads them.
//
// A Sender duplicates packets to chosen destinations over up to MaxPaths paths, by a
// TC program. Its policy, which paths for which destination, comes from signalling
// packets that the program itself verifies, or from SetPolicy. A Receiver, a native
// XDP program, lets the first replica of each packet pass and drops the others.
//
// All state is in maps that are pinned, and attachments outlive the process: packets
// go on being duplicated and eliminated while nobody runs. Opening again takes over
// what is pinned by replacing the program in its links, with no packet lost.
//
// Traffic that is not configured passes untouched, and so does whatever the programs
// cannot handle; each such case is counted in Stats.
package bpf
