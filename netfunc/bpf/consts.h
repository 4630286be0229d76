// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/* Limits and constants of the duplication edge pair. */
#ifndef HOLOCAST_CONSTS_H
#define HOLOCAST_CONSTS_H

#define MAX_PATHS 8 /* a policy is one byte: bit i = path i+1 */
#define MAX_FLOWS 1024 /* destinations per receiver */
#define MAX_INTERFACES 64 /* per receiver */
#define ID_COUNTERS 1024 /* packet ID counters, indexed by destination hash */

/*
 * Path i+1 has DSCP 4*i+3, from codepoint pool 2 (xxxx11, experimental and local use; RFC 2474
 * section 6).
 */
#define CODEPOINT_STEP_BITS 2
#define CODEPOINT_BASE 3
#define CODEPOINT_LAST (((MAX_PATHS - 1) << CODEPOINT_STEP_BITS) + CODEPOINT_BASE)

/* Signalling packets: DSCP 63 of the same pool, no ECN. See netfunc/signal. */
#define SIGNAL_TOS 0xfc
#define SIGNAL_SIZE 64
#define SIGNAL_SIGNED 32 /* bytes under the HMAC */
#define SIGNAL_MAGIC 0x48435347 /* "HCSG" */
#define SIGNAL_VERSION 2

/* skb->mark of replicas. Egress programs do not duplicate marked packets. */
#define MARK_REPLICA 0x04000000

/*
 * A slot of the replica table holds 14 bits of time, 8 of paths and 42 of the packet hash. A time
 * unit is 2^22 ns = 4.2 ms, so times wrap after 68.7 s. A time may be up to SLOT_AHEAD units (0.27
 * s) in the future, since a processor that read the clock later may run first.
 */
#define SLOT_WAYS 8
#define SLOT_TAG_BITS 42
#define SLOT_TAG_MASK ((1ULL << SLOT_TAG_BITS) - 1)
#define SLOT_TIME_SHIFT (SLOT_TAG_BITS + MAX_PATHS)
#define SLOT_TIME_BITS (64 - SLOT_TIME_SHIFT)
#define SLOT_TIME_MASK ((1U << SLOT_TIME_BITS) - 1)
#define SLOT_UNIT_SHIFT 22
#define SLOT_AHEAD 64
#define SLOT_TRIES 4 /* attempts to claim a slot before the packet passes */

#define MAX_TCP_WORDS 15 /* 4-byte words in a TCP header */
#define MAX_EQUAL 8 /* equal packets without an ID that can be distinguished within the stale time */
#define MAX_IP_LENGTH 0x3fff /* largest packet the receiver handles; jumbo frames have 9000 bytes */

#define UPLINK_RING (1 << 18)
#define SIGNAL_RING (1 << 14)
#define ARRIVAL_RING (1 << 22) /* default; user space sets the size */

#endif
