//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "packet.h"
#include "replicate.h"
#include "sender_maps.h"
#include "signalling.h"
#include "verdict.h"

/*
 * Returns a cursor over the packet. Makes the IP header linear if necessary; the Ethernet header
 * always is.
 */
static __always_inline struct cursor open_packet(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethernet *ethernet = data;
	__u32 want = sizeof(struct ethernet) + MAX_VLAN_TAGS * sizeof(struct vlan_tag) + sizeof(struct ipv6);

	if ((void *)(ethernet + 1) <= end) {
		if (ethernet->type == bpf_htons(ETH_P_IP))
			want = sizeof(struct ethernet) + sizeof(struct iphdr);
		else if (ethernet->type == bpf_htons(ETH_P_IPV6))
			want = sizeof(struct ethernet) + sizeof(struct ipv6);
	}
	if (data + want > end && skb->len > sizeof(struct ethernet))
		bpf_skb_pull_data(skb, want < skb->len ? want : skb->len);
	return (struct cursor){ (void *)(long)skb->data, (void *)(long)skb->data_end };
}

/* Length of the headers that each segment of a GSO packet repeats. */
static __always_inline __u32 repeated(struct __sk_buff *skb, const struct packet *p)
{
	__u8 words;

	if (p->protocol == IPPROTO_UDP)
		return p->headers + sizeof(struct udp);
	if (p->protocol == IPPROTO_TCP && !bpf_skb_load_bytes(skb, p->offset + p->headers + 12, &words, 1))
		return p->headers + (words >> 4) * 4;
	return p->headers;
}

static __always_inline int duplicate_packet(struct __sk_buff *skb, bool routed)
{
	struct sender_counters *counts = counters();
	struct job job = { .routed = routed };
	struct address destination;
	struct packet p;

	if (!counts)
		return PASS;
	if (!routed && skb->mark & MARK_REPLICA) {
		skb->mark &= ~MARK_REPLICA;
		return PASS;
	}
	if (routed && skb->pkt_type != PACKET_HOST)
		return PASS;

	struct cursor c = open_packet(skb);
	enum parse_result result = parse_packet(&c, &p);
	if (result == PARSE_OTHER)
		return PASS;
	if (result == PARSE_TRUNCATED || !p.valid)
		goto truncated;
	if (routed) {
		int verdict = take_signal(skb, counts, &p);
		if (verdict != PASS)
			return verdict;
	}
	job.v6 = p.v6;
	destination_of(&p, &destination);

	struct policy *policy = bpf_map_lookup_elem(&policies, &destination);
	if (!policy)
		return PASS;
	job.bits = *(volatile __u8 *)&policy->bits;
	if (!job.bits)
		return PASS;
	job.steered = !(job.bits & (job.bits - 1));
	if (p.offset + p.length > skb->len)
		goto truncated;
	if (routed && p.lifetime <= 1) {
		counts->expiring++;
		return PASS;
	}
	if (!routed && (p.tags || skb->vlan_present)) {
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
	/* The tags in the frame are removed below. */
	__u32 fitting = fitting_paths(skb, job.bits & state.up, job.turn, routed ? p.tags * sizeof(struct vlan_tag) : 0);
	__u32 here = routed ? 0 : fitting >> MAX_PATHS;
	job.bits = fitting & ((1 << MAX_PATHS) - 1);
	if (!job.bits) {
		counts->unusable++;
		return PASS;
	}

	job.segments = segments_of(skb);
	if (!job.steered)
		job.id = next_ids(&destination, job.segments);
	job.bytes = p.length;
	if (job.segments > 1)
		job.bytes = skb->len - p.offset + (__u64)(job.segments - 1) * repeated(skb, &p);

	if (routed) { /* a router removes VLAN tags */
		__u32 tags = p.tags + !!skb->vlan_present;
		for (__u32 i = 0; i <= MAX_VLAN_TAGS; i++) {
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
 * duplicate sends packets to selected destinations over several paths and consumes signalling packets.
 * Hook:     TC ingress (TCX or clsact), on the LAN interfaces of a router.
 * Input:    Ethernet, up to two VLAN tags plus an offloaded one, IPv4 or IPv6, including GSO.
 * Reads:    policies, paths, path_states.
 * Writes:   ids, sent, policies, nonces, signals.
 * Verdicts: REDIRECT the last replica; SHOT signalling packets for this host; UNSPEC other packets, unchanged.
 */
SEC("tc")
int duplicate(struct __sk_buff *skb)
{
	return duplicate_packet(skb, true);
}

/*
 * duplicate_out duplicates the packets of the host it runs on.
 * Hook:     TC egress (TCX or clsact), on the interfaces of the paths.
 * Input:    as for duplicate, without VLAN tags. Packets with MARK_REPLICA are replicas and pass.
 * Reads:    policies, paths, path_states.
 * Writes:   ids, sent.
 * Verdicts: UNSPEC the replica that leaves on this interface, otherwise REDIRECT the last one; UNSPEC other packets.
 */
SEC("tc")
int duplicate_out(struct __sk_buff *skb)
{
	return duplicate_packet(skb, false);
}

/*
 * monitor reports packets whose length is in the uplink window and consumes signalling packets.
 * Hook:     TC ingress (TCX or clsact), on interfaces that receive viewers' or signalling packets.
 * Input:    Ethernet, up to two VLAN tags plus an offloaded one, IPv4 or IPv6, including GRO.
 * Reads:    no maps.
 * Writes:   sent, uplinks, policies, nonces, signals.
 * Verdicts: SHOT signalling packets for this host; UNSPEC other packets, unchanged.
 */
SEC("tc")
int monitor(struct __sk_buff *skb)
{
	struct sender_counters *counts = counters();
	struct cursor c = open_packet(skb);
	struct uplink_record record = {};
	struct packet p;

	if (!counts || parse_packet(&c, &p) != PARSE_IP || !p.valid)
		return PASS;
	int verdict = take_signal(skb, counts, &p);
	if (verdict != PASS)
		return verdict;

	__u32 length = p.length;
	record.segments = segments_of(skb);
	if (record.segments > 1)
		length = repeated(skb, &p) + skb->gso_size;
	if (length < uplink_min || length > uplink_max)
		return PASS;
	if ((p.protocol == IPPROTO_UDP || p.protocol == IPPROTO_TCP) && !p.later)
		bpf_skb_load_bytes(skb, p.offset + p.headers, record.ports, sizeof(record.ports));
	source_of(&p, &record.source);
	destination_of(&p, &record.destination);
	record.length = length;
	record.time = bpf_ktime_get_ns();
	counts->uplink++;
	if (bpf_ringbuf_output(&uplinks, &record, sizeof(record), 0))
		counts->ring_full++;
	return PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
