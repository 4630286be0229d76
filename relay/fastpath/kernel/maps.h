// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/* Maps and settings. Nothing is pinned, so the maps end with the process. */
#ifndef HOLOCAST_FASTPATH_MAPS_H
#define HOLOCAST_FASTPATH_MAPS_H

#include <stdbool.h>

#include "chacha20poly1305.h"
#include "structs.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8 * (MAX_SOURCES + MAX_VIEWERS));
	__type(key, struct connection_id);
	__type(value, struct connection);
} connections SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_SOURCES);
	__type(key, __u32);
	__type(value, struct source);
} sources SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_VIEWERS);
	__type(key, __u32);
	__type(value, struct viewer);
} viewers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, PRECOMPUTED_VIEWERS);
	__type(key, __u32);
	__type(value, struct key_streams);
} precomputed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_TRACKS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct track_key);
	__type(value, struct track);
} tracks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_VIEWERS);
	__type(key, struct endpoint);
	__type(value, struct route);
} routes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RECORD_RING);
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lease);
} leases SEC(".maps");

/* A copy in flight to a viewer, which viewer_egress writes to the clone. */
struct copy {
	__u32 ready; /* set while this CPU sends the clone */
	__u32 headers; /* bytes up to the end of the UDP header, without the pad */
	__u32 quic; /* length of the short header */
	__u32 size; /* length of the sealed text */
	__u32 v6;
	__u8 start[128] __attribute__((aligned(8))); /* pad, headers and short header, with room for fixed-size stores */
};

/* Per-CPU scratch memory for the current packet. */
struct work {
	struct aead opened; /* the publisher's packet */
	struct aead sealed; /* a viewer's packet */
	struct copy copy;
	struct headers headers; /* of the publisher's packet */
	struct sent_record record;
	__u64 stream[PRECOMPUTED_TEXT / 8]; /* copy of a key stream */
	__u32 at; /* offset of the next frame in opened */
	__u32 skip; /* number of integers of an ACK frame to skip first */
	/* The object found: */
	__u64 group;
	__u64 object;
	__u32 type;
	__u32 rest; /* offset in opened of the object's bytes after the alias */
	__u32 end; /* offset of the end of these bytes */
	__u32 track; /* id */
	__u32 partial; /* the checksum is offloaded */
	__u64 integer; /* set by take_quic_integer and take_moq_integer */
	struct track_key key;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct work);
} works SEC(".maps");

/* Keep the types in the object for bpf2go. */
const struct sent_record *const sent_record_type = NULL;
const enum count *const count_type = NULL;

volatile const __be16 port = bpf_htons(4443); /* relay port */
volatile const __u32 cid_length = 4; /* length of the relay's connection IDs */
volatile const bool unprotected; /* for measurements: no packet protection */

static __always_inline struct work *get_work(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&works, &zero);
}

static __always_inline void add(__u32 which, __u64 n)
{
	__u32 zero = 0;
	struct counters *c = bpf_map_lookup_elem(&counts, &zero);

	if (c && which < COUNTS)
		c->count[which] += n;
}

static __always_inline void count(__u32 which)
{
	add(which, 1);
}

/* True while user space is running and registers packets. */
static __always_inline bool alive(__u64 now)
{
	__u32 zero = 0;
	struct lease *lease = bpf_map_lookup_elem(&leases, &zero);

	return lease && now < *(volatile __u64 *)&lease->until;
}

#endif
