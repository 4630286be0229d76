// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/*
 * Limits, and types shared by programs and user space: map keys and values, ring records. Integers
 * are in host byte order unless a type says otherwise.
 */
#ifndef HOLOCAST_FASTPATH_STRUCTS_H
#define HOLOCAST_FASTPATH_STRUCTS_H

#include <linux/bpf.h>

#include "headers.h"

#define MAX_SOURCES 256 /* publisher connections */
#define MAX_VIEWERS 1024 /* viewer connections */
#define MAX_TRACKS 4096
#define MAX_TRACK_VIEWERS 64 /* per track; user space serves the rest */
#define MAX_CID 20 /* bytes in a connection ID (RFC 9000 section 17.2) */
#define SEEN_PACKETS 1024 /* size of the replay window, in packet numbers */
#define RECORD_RING (1 << 20)

/* Key and IV of one direction and key phase (RFC 9001 section 5). */
struct packet_key {
	__u32 key[8];
	__u32 iv[3];
	__u32 valid;
};

/* A connection ID chosen by the relay, zero-padded. */
struct connection_id {
	__u8 bytes[MAX_CID];
};

/* A connection's roles, as index + 1; 0 = none. */
struct connection {
	__u32 source;
	__u32 viewer;
};

/* A remote endpoint. IPv4 addresses are mapped to IPv6. */
struct endpoint {
	struct address address;
	__be16 port;
	__u16 reserved;
};

/*
 * A publisher's connection, in shared memory. User space writes all fields before setting on; after
 * that, the program writes largest, found, guess and seen.
 */
struct source {
	__u32 on;
	struct endpoint remote;
	__u32 header_key[8];
	struct packet_key keys[2]; /* by key phase bit */
	__u32 prefix_length; /* of the encoded quarter stream ID in a WebTransport session (RFC 9297 section 2.1) */
	__u64 prefix; /* bytes in wire order */
	__u64 largest; /* largest authenticated packet number, valid once found is set */
	__u32 found;
	__u32 guess; /* guess for the next packet, see largest_number */
	__u64 seen[SEEN_PACKETS]; /* newest number + 1, at index number % SEEN_PACKETS */
};

/*
 * A block of packet numbers for the kernel. To take back the rest, user space
 * replaces next with BLOCK_NONE; the numbers from the old value on then stay
 * unused. To hand out a block it sets first, then limit, then next.
 */
struct block {
	__u64 next;
	__u64 first;
	__u64 limit; /* end of the block << 1, with the key phase in bit 0 */
};

#define BLOCK_NONE (1ULL << 62)

/* A location in a track. */
struct location {
	__u32 track; /* id */
	__u32 reserved;
	__u64 group;
	__u64 object;
};

/*
 * A viewer's connection, in shared memory. The programs write sent, next, fallbacks and
 * last_fallback, and clear on to suspend the viewer; user space writes the rest.
 *
 * After an object falls back to user space for lack of room, packet numbers or window, later
 * objects must not overtake it, or the viewer would consider it lost and request it again. So the
 * rest of its group falls back too. If it is not the first object of its group, all objects fall
 * back until user space has passed it on. Groups of a single object need not wait.
 */
struct viewer {
	__u32 on;
	struct endpoint remote;
	struct block block;
	__u64 sent; /* total bytes of UDP payload */
	__u64 allowed; /* limit for sent */
	__u64 fallbacks; /* number of such fallbacks; written after last_fallback */
	__u64 caught_up; /* number of fallbacks passed on by user space */
	struct location last_fallback;
	__u32 header_key[8];
	struct packet_key keys[2]; /* by key phase bit */
	__u32 max_size; /* bytes of UDP payload */
	__u32 max_frame; /* bytes of a DATAGRAM frame, including its type */
	__u32 cid_length;
	__u32 prefix_length; /* as in struct source */
	__u64 prefix;
	struct connection_id cid;
	__u32 ecn; /* ECN field of the IP header */
};

#define PRECOMPUTED_VIEWERS 64 /* only the first viewers have key streams */
#define PRECOMPUTED_PACKETS 16 /* per viewer */
#define PRECOMPUTED_TEXT 1536 /* equal to AEAD_TEXT */

/*
 * The precomputed key stream of one packet. User space clears number before it writes the other
 * fields, and sets it last.
 */
struct key_stream {
	__u64 number; /* packet number + 1; 0 = none */
	__u64 length; /* bytes */
	__u64 words[PRECOMPUTED_TEXT / 8];
};

/*
 * Key streams of a viewer's next packets, at index number % PRECOMPUTED_PACKETS. Shared memory,
 * written by user space.
 */
struct key_streams {
	struct key_stream of[PRECOMPUTED_PACKETS];
};

/* A track of one publisher. */
struct track_key {
	__u64 alias;
	__u32 source;
	__u32 reserved;
};

/* A viewer's subscription to a track. */
struct subscription {
	__u64 start_group; /* first location requested */
	__u64 start_object;
	__u64 last_group;
	__u64 alias[2]; /* encoded, in wire order */
	__u32 alias_length;
	__u32 viewer;
};

struct track {
	__u32 id;
	__u32 count;
	struct subscription viewers[MAX_TRACK_VIEWERS];
};

#define HEADERS_PAD 2 /* bytes before the Ethernet header, to align the IP header */
#define MAX_HEADERS (HEADERS_PAD + 62) /* Ethernet, IPv6 and UDP */

/* The headers of the last packet that the stack sent to an endpoint. */
struct route {
	struct bpf_spin_lock lock;
	__u32 ifindex; /* 0 = unknown */
	__u32 length; /* length of headers, without the pad */
	__u8 headers[MAX_HEADERS];
};

/* A packet sent by the kernel. Shared ring. */
struct sent_record {
	__u64 time; /* CLOCK_MONOTONIC, ns */
	__u64 number; /* packet number */
	__u64 group;
	__u64 object;
	__u32 viewer;
	__u32 track;
	__u32 size; /* UDP payload, bytes */
	__u32 ecn;
};

/* Length of the headers before the UDP payload. */
#define HEADERS(v6) (sizeof(struct ethernet) + ((v6) ? sizeof(struct ipv6) : sizeof(struct iphdr)) + sizeof(struct udp))

/*
 * Headers of fixed length: no VLAN tag, IP options, extension headers, fragments or GSO. Packets
 * with any of those are not parsed.
 */
struct headers {
	__u16 pad; /* aligns the IP header */
	struct ethernet ethernet;
	union {
		struct {
			struct iphdr ip;
			struct udp udp;
		} v4;
		struct {
			struct ipv6 ip;
			struct udp udp;
		} v6;
	};
};

/* Packet counters, with the names of the metrics. */
enum count {
	COUNT_FORWARDED, /* copies sent to viewers */
	COUNT_BYTES, /* UDP payload bytes of these copies */
	COUNT_OPENED, /* authentic publisher packets */
	COUNT_PRECOMPUTED, /* copies with a precomputed key stream */
	/* Publisher packets handled only by user space, by reason: */
	COUNT_USER_GSO, /* several packets in one buffer */
	COUNT_USER_UNKNOWN_ADDRESS, /* a known connection ID from another address */
	COUNT_USER_KEY, /* unknown key phase */
	COUNT_USER_SEARCH, /* not authentic with the guessed packet number */
	COUNT_USER_FORGED, /* not authentic */
	COUNT_USER_REPLAYED, /* repeated packet number, or one too old to check */
	COUNT_USER_FRAMES, /* not exactly one DATAGRAM with only ACK, PING and PADDING */
	COUNT_USER_OBJECT, /* not a plain object: status, properties, padding or malformed */
	COUNT_USER_ALIAS, /* track without viewers in the kernel */
	/* Copies that fall back to user space, by reason: */
	COUNT_FALLBACK_FILTER, /* outside the subscription's range */
	COUNT_FALLBACK_SUSPENDED, /* the viewer is suspended */
	COUNT_FALLBACK_ROUTE, /* the stack has not sent a packet there yet */
	COUNT_FALLBACK_SIZE, /* too large for the path or the peer */
	COUNT_FALLBACK_NUMBERS, /* out of packet numbers */
	COUNT_FALLBACK_BUDGET, /* congestion window full */
	COUNT_FALLBACK_ORDER, /* must not overtake an earlier fallback */
	COUNT_FALLBACK_RING, /* the ring is full, as user space is too slow */
	COUNT_FAILED, /* registered but not sent */
	COUNT_MIGRATED, /* viewers suspended after an address change */
	COUNTS,
};

struct counters {
	__u64 count[COUNTS];
};

/* Shared memory. User space keeps extending until, a time on CLOCK_MONOTONIC in ns. */
struct lease {
	__u64 until;
};

#endif
