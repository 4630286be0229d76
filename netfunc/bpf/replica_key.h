// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/* The key that the replicas of a packet, and they alone, have in common: a hash of the
 * flow, the packet ID, the length, TCP's header, and bytes of the payload, among them the
 * last eight, where QUIC has its authentication tag. The ID alone, as in the paper, repeats
 * after 65536 packets. IPv6 packets have none, so that all their payload counts; for those that
 * are equal even so see claim_packet in replica_table.h. Left
 * out is what differs between replicas: DSCP, TTL, and checksums, which one path's device
 * may compute and another's leave for later. */
#ifndef HOLOCAST_REPLICA_KEY_H
#define HOLOCAST_REPLICA_KEY_H

#include "packet.h"

struct tcp {
	__be16 source;
	__be16 destination;
	__be32 sequence;
	__be32 acknowledged;
	__u8 words; /* high four bits: of the header, in units of 4 bytes */
	__u8 flags;
	__be16 window;
	__sum16 checksum;
	__be16 urgent;
};

/* One step of the hash, by the golden ratio. */
static __always_inline __u64 mix(__u64 hash, __u64 value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15;
	return hash ^ hash >> 32;
}

/* One load, aligned or not: x86-64 and arm64 allow both. */
static __always_inline __u64 load64(const void *at)
{
	return *(const __u64 *)at;
}

static __always_inline __u32 load32(const void *at)
{
	return *(const __u32 *)at;
}

/* Mixes in what tells two TCP segments with the same numbers apart: flags, window and
 * options, such as time stamps. A FIN follows an ACK, and a retransmission what it repeats,
 * with no other difference in the header. */
static __always_inline void mix_tcp(__u64 *hash, const struct packet *p, void *end)
{
	const __u8 *header = p->transport;

	if (p->transport + sizeof(struct tcp) > end)
		return;
	*hash = mix(*hash, load32(header + 12));
	__u32 words = header[12] >> 4, whole = (p->length - p->headers) / 4;
	if (words > whole)
		words = whole;
#pragma unroll
	for (__u32 i = sizeof(struct tcp) / 4; i < MAX_TCP_WORDS; i += 2) {
		if (i + 1 < words && (void *)(header + 4 * i + 8) <= end)
			*hash = mix(*hash, load64(header + 4 * i));
		else if (i < words && (void *)(header + 4 * i + 4) <= end)
			*hash = mix(*hash, load32(header + 4 * i));
	}
}

/* Mixes in the ports and what follows the headers. False: the packet is cut off. */
static __always_inline bool mix_payload(__u64 *hash, const struct packet *p, void *end)
{
	__u32 payload = p->length - p->headers;
	__u32 covered = 0; /* bytes at the front that hold a checksum, or that were mixed in */
	__u32 front = 0; /* offset of eight distinctive bytes: TCP's numbers, ICMP's, QUIC's */

	if (!p->later) {
		if (p->protocol == IPPROTO_UDP) {
			covered = 8;
			front = 8;
		} else if (p->protocol == IPPROTO_TCP) {
			covered = 20;
			front = 4;
		} else if (p->protocol == IPPROTO_ICMP || p->protocol == IPPROTO_ICMPV6) {
			covered = 4;
			front = 4;
		} else if (p->protocol == IPPROTO_SCTP) {
			covered = 12;
			front = 12;
		}
	}
	if (covered && payload >= 4 && p->transport + 4 <= end &&
	    p->protocol != IPPROTO_ICMP && p->protocol != IPPROTO_ICMPV6)
		*hash = mix(*hash, load32(p->transport));
	if (covered && payload >= front + 8 && p->transport + front + 8 <= end)
		*hash = mix(*hash, load64(p->transport + front));
	if (covered && p->protocol == IPPROTO_TCP && payload >= sizeof(struct tcp))
		mix_tcp(hash, p, end);

	/* The last eight bytes, or as many of them as are payload. The load stays within
	 * the packet: its headers are longer than that. It is eight bytes back from a pointer
	 * that was compared with the end, so that the verifier need not follow a difference,
	 * which before Linux 6.18 it does not. */
	__u32 length = p->length;
	OPAQUE(length);
	if (length > MAX_IP_LENGTH)
		return false;
	void *tail = p->ip + length;
	if (tail > end)
		return false;
	__u64 last = bpf_be64_to_cpu(load64(tail - 8));
	__u32 bytes = payload > covered ? payload - covered : 0;
	if (bytes < 8)
		last &= (1ULL << (8 * bytes)) - 1;
	*hash = mix(*hash, last);
	return true;
}

/* Returns hash with all the payload of a packet without a number mixed in, which is length bytes of the frame from
 * offset on: two of one flow may have the same head and tail. TCP's header and ESP's tail tell packets apart without
 * it. Left out are checksums, and the last length % 8 bytes, which mix_payload has. In four lanes,
 * whose multiplications overlap. They begin far apart, so that no words but by chance make two of them equal, which
 * would cancel each other out. A global function, so that the verifier looks at it once. */
__noinline __u64 mix_unnumbered(struct xdp_md *ctx, __u64 hash, __u32 offset, __u32 length, __u32 protocol)
{
	void *end = (void *)(long)ctx->data_end;
	void *at = (void *)(long)ctx->data;
	__u64 a = hash, b = mix(hash, 1), c = mix(hash, 2), d = mix(hash, 3);
	__u32 covered = 0; /* bytes at the front that hold a checksum */

	if (protocol == IPPROTO_TCP || protocol == IPPROTO_ESP)
		return hash;
	if (protocol == IPPROTO_UDP)
		covered = 8;
	else if (protocol == IPPROTO_ICMP || protocol == IPPROTO_ICMPV6)
		covered = 4;
	else if (protocol == IPPROTO_SCTP)
		covered = 12;
	if (length <= covered || offset > MAX_IP_LENGTH)
		return hash;
	offset += covered;
	length -= covered;
	OPAQUE(offset);
	OPAQUE(length);
	if (offset > MAX_IP_LENGTH)
		return hash;
	at += offset;
	for (int i = 0; i < MAX_IP_LENGTH / 32 && length >= 32 && at + 32 <= end; i++) {
		a = mix(a, load64(at));
		b = mix(b, load64(at + 8));
		c = mix(c, load64(at + 16));
		d = mix(d, load64(at + 24));
		at += 32;
		length -= 32;
	}
	for (int i = 0; i < 3 && length >= 8 && at + 8 <= end; i++) {
		a = mix(a, load64(at));
		at += 8;
		length -= 8;
	}
	return mix(mix(a, b), mix(c, d));
}

/* The key of a packet whose transport header was found. False: the packet is cut off. */
static __always_inline bool replica_key(struct xdp_md *ctx, __u64 *key, __u64 seed, const struct packet *p, void *end)
{
	__u64 hash = seed;

	if (p->v6) {
		struct ipv6 *ip = p->ip;
		hash = mix(hash, load64(&ip->source.word[0]));
		hash = mix(hash, load64(&ip->source.word[2]));
		hash = mix(hash, load64(&ip->destination.word[0]));
		hash = mix(hash, load64(&ip->destination.word[2]));
	} else {
		struct iphdr *ip = p->ip;
		hash = mix(hash, (__u64)ip->saddr << 32 | ip->daddr);
	}
	hash = mix(hash, (__u64)p->number << 32 | p->fragment << 16 | p->length);
	hash = mix(hash, p->headers << 8 | p->protocol);
	if (!mix_payload(&hash, p, end))
		return false;
	/* A number tells packets apart, as TCP's header does. No branch here: the verifier would follow it to the end. */
	__u32 protocol = !p->v6 || p->fragment ? IPPROTO_TCP : p->protocol;
	hash = mix_unnumbered(ctx, hash, p->transport - (void *)(long)ctx->data, p->length - p->headers, protocol);
	*key = mix(hash, hash >> 29);
	return true;
}

#endif
