// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/* Maps and settings of the receiver. Maps are pinned and outlive the program; settings
 * are those of one load. */
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
	__type(key, __u32); /* its index */
	__type(value, struct interface);
} interfaces SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << 17); /* user space sets it, to a power of two */
	__uint(map_flags, BPF_F_MMAPABLE); /* page-aligned: a bucket is one cache line */
	__type(key, __u32);
	__type(value, struct bucket);
} replicas SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_FLOWS);
	__type(key, __u32); /* index of the flow */
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

/* User space's alone, kept with the rest. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ledger);
} ledgers SEC(".maps");

/* Keeps the type of the ring's records in the object, from where bpf2go takes it. */
const struct arrival_record *const arrival_record_type = NULL;

volatile const __u64 seed; /* of the hash; lasts as long as the replica table */
volatile const __u32 bucket_mask = (1 << 17) - 1;
volatile const __u32 stale = 238; /* units of time, see SLOT_UNIT_SHIFT */

#endif
