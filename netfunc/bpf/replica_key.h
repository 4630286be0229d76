// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/*
 * The replica key is shared by all replicas of a packet and by no other packet. It hashes the flow,
 * the packet ID, the length, TCP's header and parts of the payload, including its last eight bytes,
 * where QUIC has its authentication tag. The packet ID alone, as used in the paper, repeats after
 * 65536 packets. IPv6 has no packet ID, so all of its payload is hashed; claim_packet in
 * replica_table.h handles equal packets. The hash excludes fields that differ between replicas:
 * DSCP, TTL, and checksums, which some devices compute and others leave to offload.
 */
#ifndef HOLOCAST_REPLICA_KEY_H
#define HOLOCAST_REPLICA_KEY_H

#include "packet.h"

struct tcp {
	__be16 source;
	__be16 destination;
	__be32 sequence;
	__be32 acknowledged;
	__u8 words; /* high four bits: header length in units of 4 bytes */
	__u8 flags;
	__be16 window;
	__sum16 checksum;
	__be16 urgent;
};

/* One hash step: multiply by 2^64 divided by the golden ratio, then fold. */
static __always_inline __u64 mix(__u64 hash, __u64 value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15;
	return hash ^ hash >> 32;
}

/* Loads at any alignment, as x86-64 and arm64 allow. */
static __always_inline __u64 load64(const void *at)
{
	return *(const __u64 *)at;
}

static __always_inline __u32 load32(const void *at)
{
	return *(const __u32 *)at;
}

/*
 * Mixes in fields that distinguish TCP segments with the same sequence numbers: flags, window and
 * options such as timestamps. A FIN after an ACK, or a retransmission, may differ in nothing else.
 */
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

/* Mixes in the ports and parts of the payload. Returns false if the packet is truncated. */
static __always_inline bool mix_payload(__u64 *hash, const struct packet *p, void *end)
{
	__u32 payload = p->length - p->headers;
	__u32 covered = 0; /* leading bytes to skip: checksums, and fields mixed in already */
	__u32 front = 0; /* offset of eight distinctive bytes, such as TCP sequence numbers */

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

	/*
	 * The last eight bytes, masked to the payload's length. The load stays within the packet
	 * because the headers are longer. It goes back from a pointer that was compared with the end,
	 * because the verifier did not track differences of pointers before Linux 6.18.
	 */
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

/*
 * Mixes the payload of an IPv6 packet into hash: length bytes of the frame from offset on. Packets
 * of one flow may have equal heads and tails. TCP and ESP are skipped, since TCP's header and ESP's
 * tail distinguish their packets. Checksums and the last length % 8 bytes, which mix_payload
 * covers, are excluded. Four lanes let multiplications overlap; different start values keep equal
 * words in two lanes from cancelling out. A global function is verified only once.
 */
__noinline __u64 mix_unnumbered(struct xdp_md *ctx, __u64 hash, __u32 offset, __u32 length, __u32 protocol)
{
	void *end = (void *)(long)ctx->data_end;
	void *at = (void *)(long)ctx->data;
	__u64 a = hash, b = mix(hash, 1), c = mix(hash, 2), d = mix(hash, 3);
	__u32 covered = 0; /* leading bytes with a checksum */

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

/*
 * Computes the key of a packet whose transport header was found. Returns false if the packet is
 * truncated.
 */
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
	/*
	 * Packets with a packet ID skip the payload, like TCP. This is not a branch, since the verifier
	 * would follow both sides to the end.
	 */
	__u32 protocol = !p->v6 || p->fragment ? IPPROTO_TCP : p->protocol;
	hash = mix_unnumbered(ctx, hash, p->transport - (void *)(long)ctx->data, p->length - p->headers, protocol);
	*key = mix(hash, hash >> 29);
	return true;
}

#endif
