// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/*
 * Maps and settings of the receiver. Maps are pinned and outlive the program. Settings are fixed at
 * load time.
 */
#ifndef HOLOCAST_RECEIVER_MAPS_H
#define HOLOCAST_RECEIVER_MAPS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "consts.h"
#include "structs.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_FLOWS);
	__type(key, struct address); /* destination */
	__type(value, struct flow);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_INTERFACES);
	__type(key, __u32); /* interface index */
	__type(value, struct interface);
} interfaces SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << 17); /* default; user space sets a power of two */
	__uint(map_flags, BPF_F_MMAPABLE); /* page-aligned, so that a bucket is one cache line */
	__type(key, __u32);
	__type(value, struct bucket);
} replicas SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_FLOWS);
	__type(key, __u32); /* index from flow.id */
	__type(value, struct flow_counters);
} flow_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct receiver_counters);
} received SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, ARRIVAL_RING);
} arrivals SEC(".maps");

/* User space state that is stored with the maps. The program does not use it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ledger);
} ledgers SEC(".maps");

/* Keeps the record type in the object for bpf2go. */
const struct arrival_record *const arrival_record_type = NULL;

volatile const __u64 seed; /* hash seed, constant while the replica table lives */
volatile const __u32 bucket_mask = (1 << 17) - 1;
volatile const __u32 stale = 238; /* in time units, see SLOT_UNIT_SHIFT */

#endif
