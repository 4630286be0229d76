// Package tcpcc adds TCP congestion controllers to the kernel: Vegas and YeAH, as eBPF programs. Distributions ship
// them as modules; kernels for containers and virtual machines often lack them.
package tcpcc
