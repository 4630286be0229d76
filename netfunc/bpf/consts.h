// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/* Limits and numbers of the duplication edge pair. */
#ifndef HOLOCAST_CONSTS_H
#define HOLOCAST_CONSTS_H

#define MAX_PATHS 8 /* a policy is one byte: bit i = path i+1 */
#define MAX_FLOWS 1024 /* destinations of a receiver */
#define MAX_INTERFACES 64 /* of a receiver */
#define ID_COUNTERS 1024 /* packet ID counters, shared by destinations of one hash */

/* DSCP of path i+1 is 4*i+3, of pool 2 of the codepoints: xxxx11, for experimental
 * and local use (RFC 2474 section 6). */
#define CODEPOINT_STEP_BITS 2
#define CODEPOINT_BASE 3
#define CODEPOINT_LAST (((MAX_PATHS - 1) << CODEPOINT_STEP_BITS) + CODEPOINT_BASE)

/* Signalling: DSCP 63 of the same pool, no ECN. See netfunc/signal. */
#define SIGNAL_TOS 0xfc
#define SIGNAL_SIZE 64
#define SIGNAL_SIGNED 32 /* bytes under the HMAC */
#define SIGNAL_MAGIC 0x48435347 /* "HCSG" */
#define SIGNAL_VERSION 2

/* skb->mark of replicas, so that none is duplicated again where they leave. */
#define MARK_REPLICA 0x04000000

/* The replica table: a slot is 14 bits of time, 8 of paths and 42 of the packet's
 * hash. One unit of time is 2^22 ns = 4.2 ms: a turn of the clock is 68.7 s. A time
 * may lie up to SLOT_AHEAD units, 0.27 s, in the future: another processor, or
 * another virtual one, read the clock later but was faster. */
#define SLOT_WAYS 8
#define SLOT_TAG_BITS 42
#define SLOT_TAG_MASK ((1ULL << SLOT_TAG_BITS) - 1)
#define SLOT_TIME_SHIFT (SLOT_TAG_BITS + MAX_PATHS)
#define SLOT_TIME_BITS (64 - SLOT_TIME_SHIFT)
#define SLOT_TIME_MASK ((1U << SLOT_TIME_BITS) - 1)
#define SLOT_UNIT_SHIFT 22
#define SLOT_AHEAD 64
#define SLOT_TRIES 4 /* lost races for a slot before the packet passes */

#define MAX_TCP_WORDS 15 /* of a TCP header, 4 bytes each */
#define MAX_EQUAL 8 /* packets without a number that may have one key while it is not stale */
#define MAX_IP_LENGTH 0x3fff /* of a packet that the receiver looks at; jumbo frames are 9000 */

#define UPLINK_RING (1 << 18)
#define SIGNAL_RING (1 << 14)
#define ARRIVAL_RING (1 << 22) /* user space sets the size */

#endif
