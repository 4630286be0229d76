//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
#include <linux/bpf.h>
#include <linux/errno.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/pkt_cls.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "consts.h"
#include "structs.h"
#include "headers.h"
#include "checksum.h"
#include "sha256.h"
#include "sender_maps.h"

/* PASS leaves a packet to the programs after this one, then to the stack. */
enum { PASS = TC_ACT_UNSPEC, DROP = TC_ACT_SHOT };

static __always_inline struct sender_counters *counters(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&sent, &zero);
}

#include "signalling.h"
#include "replicate.h"

/* The packet as a cursor. The Ethernet header is always in reach; when the IP header
 * behind it is not, it is pulled there. */
static __always_inline struct cursor open_packet(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethernet *ethernet = data;
	__u32 want = sizeof(struct ethernet) + MAX_VLAN_TAGS * sizeof(struct vlan_tag) + sizeof(struct ipv6);

	if ((void *)(ethernet + 1) <= end) {
		if (ethernet->type == bpf_htons(ETH_P_IP))
			want = sizeof(struct ethernet) + sizeof(struct ipv4);
		else if (ethernet->type == bpf_htons(ETH_P_IPV6))
			want = sizeof(struct ethernet) + sizeof(struct ipv6);
	}
	if (data + want > end && skb->len > sizeof(struct ethernet))
		bpf_skb_pull_data(skb, want < skb->len ? want : skb->len);
	return (struct cursor){ (void *)(long)skb->data, (void *)(long)skb->data_end };
}

/* Bytes of the headers that each segment of a GSO packet repeats. */
static __always_inline __u32 repeated(struct __sk_buff *skb, __u32 offset, __u32 network, __u8 protocol)
{
	__u8 words;

	if (protocol == IPPROTO_UDP)
		return network + sizeof(struct udp);
	if (protocol == IPPROTO_TCP && !bpf_skb_load_bytes(skb, offset + network + 12, &words, 1))
		return network + (words >> 4) * 4;
	return network;
}

static __always_inline int duplicate_packet(struct __sk_buff *skb, bool routed)
{
	struct sender_counters *counts = counters();
	struct job job = { .routed = routed };
	struct address destination;
	__u32 headers; /* IP and transport */

	if (!counts)
		return PASS;
	if (!routed && skb->mark & MARK_REPLICA) {
		skb->mark &= ~MARK_REPLICA;
		return PASS;
	}
	if (routed && skb->pkt_type != PACKET_HOST)
		return PASS;

	struct cursor c = open_packet(skb);
	struct ethernet *ethernet = TAKE(&c, struct ethernet);
	if (!ethernet)
		return PASS;
	__be16 type = ethernet->type;
	int tags = skip_tags(&c, &type);
	__u32 offset = sizeof(struct ethernet) + tags * sizeof(struct vlan_tag);
	if (tags < 0)
		goto truncated;

	__u32 length, lifetime;
	__u8 protocol;
	if (type == bpf_htons(ETH_P_IP)) {
		struct ipv4 *ip = TAKE(&c, struct ipv4);
		if (!ip || ip->version != 4 || ip->words < 5)
			goto truncated;
		if (routed && !tags) {
			int verdict = take_signal(skb, counts, ip, offset);
			if (verdict != PASS)
				return verdict;
		}
		map_address(&destination, ip->destination);
		length = bpf_ntohs(ip->length);
		lifetime = ip->ttl;
		protocol = ip->protocol;
		headers = ip->words * 4;
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		struct ipv6 *ip = TAKE(&c, struct ipv6);
		if (!ip || (bpf_ntohl(ip->word) >> 28) != 6)
			goto truncated;
		destination = ip->destination;
		length = sizeof(*ip) + bpf_ntohs(ip->payload);
		lifetime = ip->hop_limit;
		protocol = ip->next;
		headers = sizeof(*ip);
		job.v6 = true;
	} else {
		return PASS;
	}

	struct policy *policy = bpf_map_lookup_elem(&policies, &destination);
	if (!policy)
		return PASS;
	job.bits = *(volatile __u8 *)&policy->bits;
	if (!job.bits)
		return PASS;
	if (offset + length > skb->len)
		goto truncated;
	if (routed && lifetime <= 1) {
		counts->expiring++;
		return PASS;
	}
	if (!routed && (tags || skb->vlan_present)) {
		counts->tagged++;
		return PASS;
	}

	__u32 zero = 0;
	struct path_state *stored = bpf_map_lookup_elem(&path_states, &zero);
	if (!stored)
		return PASS;
	__u64 word = *(volatile __u64 *)stored;
	struct path_state state;
	__builtin_memcpy(&state, &word, sizeof(state));
	job.turn = state.turn;
	__u32 fitting = fitting_paths(skb, job.bits & state.up, job.turn);
	__u32 here = routed ? 0 : fitting >> MAX_PATHS;
	job.bits = fitting & ((1 << MAX_PATHS) - 1);
	if (!job.bits) {
		counts->unusable++;
		return PASS;
	}

	job.segments = segments_of(skb);
	job.id = next_ids(&destination, job.segments);
	job.bytes = length;
	if (job.segments > 1)
		job.bytes = skb->len - offset +
			    (__u64)(job.segments - 1) * repeated(skb, offset, headers, protocol);

	if (routed) { /* a router takes off what the link was tagged with */
		tags += !!skb->vlan_present;
		for (int i = 0; i <= MAX_VLAN_TAGS; i++) {
			if (i >= tags)
				break;
			if (bpf_skb_vlan_pop(skb)) {
				counts->tagged++;
				return PASS;
			}
		}
	}
	if (!stamp(skb, &job)) {
		counts->failed++;
		return PASS;
	}
	counts->duplicated++;
	return replicate(skb, &job, highest_bit(here ? here : job.bits), here);

truncated:
	counts->truncated++;
	return PASS;
}

/*
 * duplicate: sends packets to chosen destinations over several paths, and takes signalling packets.
 * Hook:     TC ingress of the LAN side of a router, by TCX or clsact.
 * Input:    Ethernet, up to two VLAN tags besides an accelerated one, IPv4 or IPv6, GSO included.
 * Maps:     reads policies, paths, path_states; writes ids, sent, policies, nonces, signals.
 * Verdicts: REDIRECT the last replica; SHOT a signalling packet for this host; UNSPEC all else, untouched.
 */
SEC("tc")
int duplicate(struct __sk_buff *skb)
{
	return duplicate_packet(skb, true);
}

/*
 * duplicate_out: the same where the packets begin, on the host that sends them.
 * Hook:     TC egress of the interfaces of the paths, by TCX or clsact.
 * Input:    as duplicate, without tags; packets marked MARK_REPLICA are replicas and pass.
 * Maps:     reads policies, paths, path_states; writes ids, sent.
 * Verdicts: UNSPEC the replica whose path leaves here; else REDIRECT the last; UNSPEC all else, untouched.
 */
SEC("tc")
int duplicate_out(struct __sk_buff *skb)
{
	return duplicate_packet(skb, false);
}

/*
 * monitor: reports packets whose length is in the uplink window, and takes signalling packets.
 * Hook:     TC ingress of what the viewers' packets, or signalling packets, come in by.
 * Input:    Ethernet, up to two VLAN tags besides an accelerated one, IPv4 or IPv6, GRO included.
 * Maps:     writes sent, uplinks, policies, nonces, signals.
 * Verdicts: SHOT a signalling packet for this host; UNSPEC all else, untouched.
 */
SEC("tc")
int monitor(struct __sk_buff *skb)
{
	struct sender_counters *counts = counters();
	struct cursor c = open_packet(skb);
	struct ethernet *ethernet = TAKE(&c, struct ethernet);

	if (!counts || !ethernet)
		return PASS;
	__be16 type = ethernet->type;
	int tags = skip_tags(&c, &type);
	if (tags < 0)
		return PASS;

	struct uplink_record record = {};
	__u32 offset = sizeof(struct ethernet) + tags * sizeof(struct vlan_tag);
	__u32 length, headers;
	bool later = false; /* fragment without transport header */
	__u8 protocol;
	if (type == bpf_htons(ETH_P_IP)) {
		struct ipv4 *ip = TAKE(&c, struct ipv4);
		if (!ip || ip->version != 4 || ip->words < 5)
			return PASS;
		if (!tags) {
			int verdict = take_signal(skb, counts, ip, offset);
			if (verdict != PASS)
				return verdict;
		}
		length = bpf_ntohs(ip->length);
		headers = ip->words * 4;
		protocol = ip->protocol;
		later = ip->fragment & bpf_htons(IPV4_OFFSET);
		map_address(&record.source, ip->source);
		map_address(&record.destination, ip->destination);
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		struct ipv6 *ip = TAKE(&c, struct ipv6);
		if (!ip || (bpf_ntohl(ip->word) >> 28) != 6)
			return PASS;
		length = sizeof(*ip) + bpf_ntohs(ip->payload);
		headers = sizeof(*ip);
		protocol = ip->next;
		record.source = ip->source;
		record.destination = ip->destination;
	} else {
		return PASS;
	}

	record.segments = segments_of(skb);
	if (record.segments > 1)
		length = repeated(skb, offset, headers, protocol) + skb->gso_size;
	if (length < uplink_min || length > uplink_max)
		return PASS;
	if ((protocol == IPPROTO_UDP || protocol == IPPROTO_TCP) && !later)
		bpf_skb_load_bytes(skb, offset + headers, record.ports, sizeof(record.ports));
	record.length = length;
	record.time = bpf_ktime_get_ns();
	counts->uplink++;
	if (bpf_ringbuf_output(&uplinks, &record, sizeof(record), 0))
		counts->ring_full++;
	return PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
