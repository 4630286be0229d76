// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/* Types shared by programs and user space: map keys and values, ring records. */
#ifndef HOLOCAST_STRUCTS_H
#define HOLOCAST_STRUCTS_H

#include <linux/bpf.h>

#include "consts.h"
#include "headers.h"

/* A path: its interface, and the first 12 bytes of its frames. */
struct path {
	__u32 ifindex;
	__u8 next_hop[6];
	__u8 source[6];
};

/*
 * Usable paths, in one word that changes atomically. Each path has two entries in the path map:
 * user space writes the unused one and then flips the bit in turn.
 */
struct path_state {
	__u8 up;
	__u8 turn; /* bit i: entry 2i+1 is in use instead of 2i */
	__u8 reserved[6];
};

struct policy {
	struct bpf_spin_lock lock; /* serializes writers */
	__u8 bits; /* bit i = path i+1; 0 = off */
	__u8 reserved[3];
	__u64 nonce; /* of the signalling packet that set the policy; 0 = set by user space */
};

struct path_sent {
	__u64 packets;
	__u64 bytes;
	__u64 errors;
	__u64 too_big;
};

struct sender_counters {
	struct path_sent path[MAX_PATHS];
	__u64 duplicated;
	__u64 unusable;
	__u64 expiring;
	__u64 tagged;
	__u64 truncated;
	__u64 failed;
	__u64 foreign;
	__u64 applied;
	__u64 malformed;
	__u64 spoofed;
	__u64 other_version;
	__u64 replayed;
	__u64 policy_full;
	__u64 uplink;
	__u64 ring_full;
};

struct uplink_record {
	__u64 time; /* CLOCK_MONOTONIC, ns */
	struct address source;
	struct address destination;
	__be16 ports[2]; /* source, destination */
	__u16 length; /* IP packet length, bytes */
	__u16 segments;
};

struct signal_record {
	__u64 time; /* CLOCK_MONOTONIC, ns */
	__u64 nonce;
	struct address destination;
	__be32 source;
	__u8 version; /* message version; other versions have no effect */
	__u8 bits;
	__u8 full;
	__u8 reserved;
};

/*
 * A signalling message, in network byte order. Magic, version, nonce and HMAC are in the same place
 * in every version.
 */
struct signal_message {
	__be32 magic;
	__u8 version;
	__u8 bits; /* bit i = path i+1; 0 = off */
	__be16 reserved;
	__be64 nonce;
	struct address destination;
	__be32 hmac[8];
};

struct flow {
	__u32 id; /* low 10 bits: counter index; the rest distinguishes flows with the same index */
	__u8 dscp;
	__u8 paths; /* bit i = replicas are expected on path i+1 */
	__u8 reserved[2];
	__u64 behind[MAX_PATHS]; /* for user space; number of packets the path had not delivered when it joined */
};

struct path_arrived {
	__u64 passed;
	__u64 dropped;
	__u64 outside; /* passed or dropped, on a path outside the flow's set */
	__u64 twice; /* dropped because the path already delivered the packet */
	__u64 bytes;
};

struct flow_counters {
	struct path_arrived path[MAX_PATHS];
};

/* A receiver's interface. */
struct interface {
	__u8 address[6]; /* Ethernet */
	__u8 reserved[2];
};

struct receiver_counters {
	__u64 unknown;
	__u64 misaddressed;
	__u64 truncated;
	__u64 races;
	__u64 evicted;
	__u64 ring_full;
};

enum arrival_flags {
	ARRIVAL_PASSED = 1,
	ARRIVAL_OUTSIDE = 2,
	ARRIVAL_TWICE = 4,
};

struct arrival_record {
	__u64 key;
	__u64 time; /* CLOCK_MONOTONIC, ns */
	__u32 flow; /* flow.id */
	__u16 id; /* IPv4 identification */
	__u16 length; /* IP packet length, bytes */
	__u8 path; /* 0 = path 1 */
	__u8 flags; /* enum arrival_flags */
	__u8 reserved[6];
};

/*
 * User space state: the hash seed, the number of flows created, and the counters of removed flows.
 */
struct ledger {
	__u64 seed;
	__u64 flows;
	struct flow_counters removed;
};

/* One cache line of the replica table. */
struct bucket {
	__u64 slot[SLOT_WAYS];
};

#endif
