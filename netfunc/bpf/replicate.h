// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/*
 * Replication: packet ID, DSCP of the path, and next-hop addresses. The IP header follows an
 * untagged Ethernet header.
 */
#ifndef HOLOCAST_REPLICATE_H
#define HOLOCAST_REPLICATE_H

#include <linux/errno.h>

#include "checksum.h"
#include "headers.h"
#include "sender_maps.h"
#include "verdict.h"

/* How to replicate a packet. */
struct job {
	__u32 bits; /* paths still to serve */
	__u32 turn; /* of struct path_state */
	__u32 segments;
	__u32 id; /* ID of the first segment */
	__u64 bytes; /* IP bytes of all segments */
	bool v6;
	bool routed; /* decrement the TTL */
	bool steered; /* policy with one path: reroute the packet, leaving its DSCP and ID unchanged */
};

/* Index of the highest bit set; byte must not be 0. */
static __always_inline __u32 highest_bit(__u32 byte)
{
	__u32 index = (byte > 0xf) << 2;

	byte >>= index;
	index += (byte > 3) << 1;
	return index + (byte >> (index & 2) > 1);
}

static __always_inline struct path *path_entry(__u32 i, __u32 turn)
{
	__u32 entry = 2 * i + (turn >> i & 1);

	return bpf_map_lookup_elem(&paths, &entry);
}

/* Number of packets that GSO will make of this one. */
static __always_inline __u32 segments_of(struct __sk_buff *skb)
{
	__u32 segments = skb->gso_segs, size = skb->gso_size;

	if (segments)
		return segments;
	return size ? skb->len / size + 1 : 1; /* the device does not know it; use an upper bound */
}

/* Reserves packet IDs for a number of packets (segments) and returns the first. */
static __always_inline __u32 next_ids(const struct address *destination, __u32 segments)
{
	const __be32 *word = destination->word;
	__u32 hash = (word[0] ^ word[1] * 3 ^ word[2] * 5 ^ word[3] * 7) * 0x9e3779b1;
	__u32 index = hash >> 22;
	__u32 *next = bpf_map_lookup_elem(&ids, &index);

	_Static_assert(ID_COUNTERS == 1 << (32 - 22), "index");
	return next ? __sync_fetch_and_add(next, segments) : 0;
}

/* Sets the packet ID and decrements the TTL, identically for all replicas. */
static __always_inline bool stamp(struct __sk_buff *skb, const struct job *job)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;

	if (job->v6) {
		struct ipv6 *ip = data + sizeof(struct ethernet);
		if ((void *)(ip + 1) > end)
			return false;
		__u32 *words = (__u32 *)ip;
		__u32 before0 = words[0], before1 = words[1];

		if (job->routed)
			ip->hop_limit--;
		if (flow_label && !job->steered)
			ip->word = (ip->word & ~bpf_htonl(IPV6_LABEL_MASK)) | bpf_htonl(job->id & IPV6_LABEL_MASK);
		__u64 sum = (__u64)sum_of_change(before0, words[0]) + sum_of_change(before1, words[1]);
		bpf_csum_update(skb, (__u32)sum + (__u32)(sum >> 32));
		return true;
	}

	struct iphdr *ip = data + sizeof(struct ethernet);
	if ((void *)(ip + 1) > end)
		return false;
	__u16 *words = (__u16 *)ip;

	if (job->routed) {
		__u16 before = words[4]; /* TTL, protocol */
		ip->ttl--;
		ip->check = checksum_after(ip->check, before, words[4]);
	}
	if (!job->steered && !(ip->frag_off & bpf_htons(IPV4_MF | IPV4_OFFSET))) { /* fragments of a packet share its ID */
		__be16 before = ip->id;
		ip->id = bpf_htons(job->id);
		ip->check = checksum_after(ip->check, before, ip->id);
	}
	return true;
}

enum how {
	HOW_V6 = 1,
	HOW_LAST = 2, /* send the packet itself, not a clone */
	HOW_HERE = 4, /* on the interface it already leaves by */
	HOW_STEERED = 8, /* leave the DSCP unchanged, see struct job */
};

/* Sets path i's DSCP and next-hop addresses. */
static __always_inline bool address_replica(struct __sk_buff *skb, const struct path *path, __u32 i, __u32 how)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethernet *ethernet = data;
	__u32 dscp = (i << CODEPOINT_STEP_BITS) + CODEPOINT_BASE;

	if (how & HOW_STEERED) {
		if ((void *)(ethernet + 1) > end)
			return false;
		__builtin_memcpy(ethernet, path->next_hop, 12);
		return true;
	}
	if (how & HOW_V6) {
		struct ipv6 *ip = (void *)(ethernet + 1);
		if ((void *)(ip + 1) > end)
			return false;
		__be32 before = ip->word;
		ip->word = (before & ~bpf_htonl(IPV6_DSCP_MASK)) | bpf_htonl(dscp << IPV6_DSCP_SHIFT);
		__builtin_memcpy(ethernet, path->next_hop, 12);
		bpf_csum_update(skb, sum_of_change(before, ip->word));
		return true;
	}

	struct iphdr *ip = (void *)(ethernet + 1);
	if ((void *)(ip + 1) > end)
		return false;
	__u16 *words = (__u16 *)ip, before = words[0]; /* version, IHL, ToS */
	ip->tos = dscp << 2 | (ip->tos & 3);
	ip->check = checksum_after(ip->check, before, words[0]);
	__builtin_memcpy(ethernet, path->next_hop, 12);
	return true;
}

/*
 * The following functions are global, so that the verifier checks each once instead of in every
 * iteration of the loops over paths.
 */

/*
 * Returns the paths whose MTU the packet fits, not counting its first excess bytes. The second
 * byte holds the path among them whose interface the packet is already on.
 */
__noinline __u32 fitting_paths(struct __sk_buff *skb, __u32 bits, __u32 turn, __u32 excess)
{
	struct sender_counters *counts = counters();
	__u32 fitting = 0, here = 0;

	if (!counts)
		return 0;
	for (__u32 i = 0; i < MAX_PATHS; i++) {
		struct path *path;
		__u32 mtu = 0;

		if (!(bits >> i & 1))
			continue;
		path = path_entry(i, turn);
		if (!path)
			continue;
		int error = bpf_check_mtu(skb, path->ifindex, &mtu, -(__s32)excess, BPF_MTU_CHK_SEGS);
		if (error > 0) {
			counts->path[i].too_big++;
		} else if (error && error != -EINVAL) { /* EINVAL: the headers of a GSO packet were not located */
			counts->path[i].errors++;
		} else {
			fitting |= 1 << i;
			if (path->ifindex == skb->ifindex)
				here = 1 << i;
		}
	}
	return fitting | here << MAX_PATHS;
}

/* Sends a packet on path i. Returns the verdict, which applies to the last replica. */
__noinline int send_replica(struct __sk_buff *skb, __u32 i, __u32 turn, __u32 how, __u64 bytes)
{
	struct sender_counters *counts = counters();
	struct path *path;
	int verdict = PASS;

	path = path_entry(i, turn);
	if (!counts || !path || !address_replica(skb, path, i, how)) {
		if (counts)
			counts->failed++;
		return PASS;
	}
	OPAQUE(i);
	i &= MAX_PATHS - 1; /* must be here, as Linux 5.15 loses the bounds of 32-bit stack values */
	struct path_sent *sent = &counts->path[i];
	if (!(how & HOW_LAST)) {
		if (bpf_clone_redirect(skb, path->ifindex, 0)) {
			sent->errors++;
			return PASS;
		}
	} else if (!(how & HOW_HERE)) {
		verdict = bpf_redirect(path->ifindex, 0);
	}
	sent->packets += segments_of(skb);
	sent->bytes += bytes;
	return verdict;
}

/*
 * Sends a packet on each path of the job, the packet itself on path last and clones on the others.
 * Returns the packet's verdict.
 */
static __always_inline int replicate(struct __sk_buff *skb, const struct job *job, __u32 last, bool here)
{
	__u32 how = (job->v6 ? HOW_V6 : 0) | (job->steered ? HOW_STEERED : 0);

	skb->mark |= MARK_REPLICA;
	for (__u32 i = 0; i < MAX_PATHS; i++)
		if ((job->bits >> i & 1) && i != last)
			send_replica(skb, i, job->turn, how, job->bytes);
	if (here) {
		skb->mark &= ~MARK_REPLICA;
		how |= HOW_HERE;
	}
	return send_replica(skb, last, job->turn, how | HOW_LAST, job->bytes);
}

#endif
