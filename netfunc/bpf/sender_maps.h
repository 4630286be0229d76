// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/*
 * Maps and settings of the sender. Maps are pinned and outlive the programs. Settings are fixed at
 * load time.
 */
#ifndef HOLOCAST_SENDER_MAPS_H
#define HOLOCAST_SENDER_MAPS_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>

#include "consts.h"
#include "structs.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096); /* default; user space sets it */
	__type(key, struct address); /* destination */
	__type(value, struct policy);
} policies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * MAX_PATHS); /* see struct path_state */
	__type(key, __u32);
	__type(value, struct path);
} paths SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct path_state);
} path_states SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ID_COUNTERS);
	__type(key, __u32); /* destination hash */
	__type(value, __u32); /* the next packet ID */
} ids SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64); /* 0: highest nonce accepted; 1: identifies its key (for user space) */
} nonces SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sender_counters);
} sent SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, UPLINK_RING);
} uplinks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, SIGNAL_RING);
} signals SEC(".maps");

/* Keep the record types in the object for bpf2go. */
const struct uplink_record *const uplink_record_type = NULL;
const struct signal_record *const signal_record_type = NULL;

volatile const bool signal_keyed;
volatile const __u32 signal_inner[8]; /* SHA-256 state after the key xor ipad */
volatile const __u32 signal_outer[8]; /* SHA-256 state after the key xor opad */
volatile const __u16 signal_port = 4790;
volatile const __u16 uplink_min = 200;
volatile const __u16 uplink_max = 300;
volatile const bool flow_label;

static __always_inline struct sender_counters *counters(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&sent, &zero);
}

#endif
