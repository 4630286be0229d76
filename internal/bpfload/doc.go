// Package bpfload is shared by all packages with eBPF programs. It attaches programs to traffic
// control (TCX, clsact) and turns failures into errors that name the missing privilege or kernel
// feature. The directory also holds the C headers that parse packets.
package bpfload
