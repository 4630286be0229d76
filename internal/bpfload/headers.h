// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/* Protocol headers, and a bounds-checked cursor over them. */
#ifndef HOLOCAST_HEADERS_H
#define HOLOCAST_HEADERS_H

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAX_VLAN_TAGS 2
#define MAX_EXTENSIONS 4 /* IPv6 extension headers before the transport header */

/* From linux/if_ether.h, without its other definitions. */
#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define ETH_P_8021Q 0x8100
#define ETH_P_8021AD 0x88a8

#define IPV4_DF 0x4000
#define IPV4_MF 0x2000
#define IPV4_OFFSET 0x1fff
#define IPV6_OFFSET 0xfff8 /* in a fragment header */

#define PACKET_HOST 0 /* linux/if_packet.h: skb->pkt_type of frames to this host */
#define AF_INET 2

/*
 * Hides the origin of a value from the compiler, which would otherwise remove bounds checks that the
 * verifier needs.
 */
#define OPAQUE(value) asm volatile("" : "+r"(value))

/* An IPv6 address, or an IPv4-mapped one (RFC 4291 section 2.5.5.2). */
struct address {
	__be32 word[4];
};

struct ethernet {
	__u8 destination[6];
	__u8 source[6];
	__be16 type;
};

struct vlan_tag {
	__be16 tci;
	__be16 type;
};

struct ipv6 {
	__be32 word; /* 4 bits version, 8 traffic class, 20 flow label */
	__be16 payload;
	__u8 next;
	__u8 hop_limit;
	struct address source;
	struct address destination;
};

#define IPV6_DSCP_SHIFT 22
#define IPV6_DSCP_MASK (0x3fU << IPV6_DSCP_SHIFT)
#define IPV6_LABEL_MASK 0xfffffU

struct udp {
	__be16 source;
	__be16 destination;
	__be16 length;
	__sum16 checksum;
};

struct ipv6_extension {
	__u8 next;
	__u8 words; /* length in units of 8 bytes, excluding the first 8 bytes */
	__be16 fragment; /* fragment header: offset and flags */
	__be32 id; /* in a fragment header */
};

struct cursor {
	void *at;
	void *end;
};

/*
 * Returns a pointer to the header of the given type at the cursor, and moves the cursor past it.
 * Returns NULL if the packet is too short.
 */
#define TAKE(cursor, type)                                                               \
	({                                                                               \
		type *header_ = (cursor)->at;                                            \
		if ((void *)(header_ + 1) > (cursor)->end)                               \
			header_ = NULL;                                                  \
		else                                                                     \
			(cursor)->at = header_ + 1;                                      \
		header_;                                                                 \
	})

#endif
