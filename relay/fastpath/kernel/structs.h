// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/* Limits, and what programs and user space share: keys and values of maps, records of
 * the ring. Integers are in host byte order unless a type says otherwise. */
#ifndef HOLOCAST_FASTPATH_STRUCTS_H
#define HOLOCAST_FASTPATH_STRUCTS_H

#include <linux/bpf.h>

#include "headers.h"

#define MAX_SOURCES 256 /* publishers' connections */
#define MAX_VIEWERS 1024 /* viewers' connections */
#define MAX_TRACKS 4096
#define MAX_TRACK_VIEWERS 64 /* of one track; more are served by user space */
#define MAX_CID 20 /* bytes of a connection ID (RFC 9000 section 17.2) */
#define SEEN_PACKETS 1024 /* numbers of a publisher that are told from replays */
#define RECORD_RING (1 << 20)

/* The key and IV of one direction and key phase (RFC 9001 section 5). */
struct packet_key {
	__u32 key[8];
	__u32 iv[3];
	__u32 valid;
};

/* What a connection is found by: one of its connection IDs that we chose, with zeros
 * behind it. */
struct connection_id {
	__u8 bytes[MAX_CID];
};

/* The one or two roles of a connection: an index + 1; 0 = none. */
struct connection {
	__u32 source;
	__u32 viewer;
};

/* The other end of a connection. An IPv4 address is mapped into IPv6. */
struct endpoint {
	struct address address;
	__be16 port;
	__u16 reserved;
};

/* A publisher's connection. Shared memory: user space writes all but largest, found, guess
 * and seen, and these before it is on. */
struct source {
	__u32 on;
	struct endpoint remote;
	__u32 header_key[8];
	struct packet_key keys[2]; /* by the header's key phase bit */
	__u32 prefix_length; /* of a WebTransport session: its quarter stream ID, encoded (RFC 9297 section 2.1) */
	__u64 prefix; /* bytes as they are in the packet */
	__u64 largest; /* packet number that was authenticated, once found */
	__u32 found;
	__u32 guess; /* which numbers the next packet tries: see largest_number */
	__u64 seen[SEEN_PACKETS]; /* by number % SEEN_PACKETS: the newest number + 1 */
};

/* Packet numbers to be used. User space takes back the rest of a block by exchanging next
 * for BLOCK_NONE: numbers from what it finds there on are unused for good. To hand out a
 * block it sets first, then limit, then next. */
struct block {
	__u64 next;
	__u64 first;
	__u64 limit; /* the end of the block << 1, and the key phase bit */
};

#define BLOCK_NONE (1ULL << 62)

/* An object of a track. */
struct location {
	__u32 track; /* id */
	__u32 reserved;
	__u64 group;
	__u64 object;
};

/* A viewer's connection. Shared memory: user space writes all but sent, next, left and
 * last_fallback.
 *
 * What follows an object that was left to user space for want of room, numbers or window is
 * left to it, too: the rest of its group and, unless that is its first object, all until user
 * space has passed it on. Otherwise it would overtake what waits there, and the viewer would take
 * that for lost and ask for it. Groups of one object are whole, and wait for nothing. */
struct viewer {
	__u32 on;
	struct endpoint remote;
	struct block block;
	__u64 sent; /* bytes of UDP payload in all */
	__u64 allowed; /* sent may grow up to here */
	__u64 fallbacks; /* objects left so, in all; last_fallback is written before */
	__u64 caught_up; /* how many of them user space has passed on */
	struct location last_fallback;
	__u32 header_key[8];
	struct packet_key keys[2]; /* by key phase bit */
	__u32 max_size; /* of UDP payload, bytes */
	__u32 max_frame; /* of a DATAGRAM frame with its type, bytes */
	__u32 cid_length;
	__u32 prefix_length; /* as of a source */
	__u64 prefix;
	struct connection_id cid;
	__u32 ecn; /* field of the IP header */
};

#define PRECOMPUTED_VIEWERS 64 /* the first ones */
#define PRECOMPUTED_PACKETS 16 /* of a viewer */
#define PRECOMPUTED_TEXT 1536 /* as AEAD_TEXT */

/* The key stream of one packet's text, made by user space while the text is unknown. User
 * space takes the number away, and writes it when the rest is there. */
struct key_stream {
	__u64 number; /* of the packet, + 1; 0 = none */
	__u64 length; /* bytes */
	__u64 words[PRECOMPUTED_TEXT / 8];
};

/* Those of a viewer's next packets, by number % PRECOMPUTED_PACKETS. Shared memory, which user
 * space writes. */
struct key_streams {
	struct key_stream of[PRECOMPUTED_PACKETS];
};

/* A track as one publisher sends it. */
struct track_key {
	__u64 alias;
	__u32 source;
	__u32 reserved;
};

/* One viewer's subscription to a track. */
struct subscription {
	__u64 start_group; /* the first location that is wanted */
	__u64 start_object;
	__u64 last_group;
	__u64 alias[2]; /* encoded, bytes as they are in the packet */
	__u32 alias_length;
	__u32 viewer;
};

struct track {
	__u32 id;
	__u32 count;
	struct subscription viewers[MAX_TRACK_VIEWERS];
};

#define HEADERS_PAD 2 /* bytes before an Ethernet header, which align what is behind it */
#define MAX_HEADERS (HEADERS_PAD + 62) /* Ethernet, IPv6 and UDP */

/* How packets reach an endpoint: the headers of the last one that the stack sent there. */
struct route {
	struct bpf_spin_lock lock;
	__u32 ifindex; /* 0 = none yet */
	__u32 length; /* of headers, without the pad */
	__u8 headers[MAX_HEADERS];
};

/* A packet that was sent. Shared ring. */
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

/* Bytes before UDP's payload. */
#define HEADERS(v6) (sizeof(struct ethernet) + ((v6) ? sizeof(struct ipv6) : sizeof(struct iphdr)) + sizeof(struct udp))

/* The IP packet as headers of known length: no VLAN tag, no IP options, no extension
 * headers, no fragment, no GSO. Anything else has none. */
struct headers {
	__u16 pad; /* aligns what is behind the Ethernet header */
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

/* What became of packets. The names are those of the metrics. */
enum count {
	COUNT_FORWARDED, /* copies sent to viewers */
	COUNT_BYTES, /* of these, UDP payload */
	COUNT_OPENED, /* publishers' packets that were authentic */
	COUNT_PRECOMPUTED, /* copies whose key stream was made before */
	/* Packets that user space alone handles, and why: */
	COUNT_USER_GSO, /* several packets in one buffer */
	COUNT_USER_UNKNOWN_ADDRESS, /* a known connection ID from another address */
	COUNT_USER_KEY, /* of a key phase that is not known yet */
	COUNT_USER_SEARCH, /* not authentic under the number that was tried */
	COUNT_USER_FORGED, /* not authentic */
	COUNT_USER_REPLAYED, /* a number again, or one that is too old */
	COUNT_USER_FRAMES, /* other frames than one DATAGRAM with ACK, PING and PADDING */
	COUNT_USER_OBJECT, /* no plain object: status, properties, padding or malformed */
	COUNT_USER_ALIAS, /* of a track that has no viewers here */
	/* Copies that user space sends, and why: */
	COUNT_FALLBACK_FILTER, /* not in the subscription's range */
	COUNT_FALLBACK_SUSPENDED, /* the viewer is suspended */
	COUNT_FALLBACK_ROUTE, /* the stack has not sent it a packet yet */
	COUNT_FALLBACK_SIZE, /* too large for the path, or for the peer */
	COUNT_FALLBACK_NUMBERS, /* no packet numbers */
	COUNT_FALLBACK_BUDGET, /* congestion window full */
	COUNT_FALLBACK_ORDER, /* what came before was left, and this may not overtake it */
	COUNT_FALLBACK_RING, /* user space is behind */
	COUNT_FAILED, /* registered but not sent */
	COUNT_MIGRATED, /* viewers suspended, as they came from another address */
	COUNTS,
};

struct counters {
	__u64 count[COUNTS];
};

/* Shared memory: user space is alive until a time of CLOCK_MONOTONIC, ns. */
struct lease {
	__u64 until;
};

#endif
