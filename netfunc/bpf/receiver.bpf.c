//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "consts.h"
#include "structs.h"
#include "headers.h"
#include "checksum.h"
#include "receiver_maps.h"
#include "replica_key.h"
#include "replica_table.h"

/* Reads an IPv6 packet's extension headers up to the transport header. */
static __always_inline bool parse_extensions(struct cursor *c, struct parsed *p)
{
#pragma unroll
	for (int i = 0; i < MAX_EXTENSIONS; i++) {
		if (p->protocol != IPPROTO_HOPOPTS && p->protocol != IPPROTO_ROUTING &&
		    p->protocol != IPPROTO_DSTOPTS && p->protocol != IPPROTO_FRAGMENT)
			break;
		struct ipv6_extension *extension = TAKE(c, struct ipv6_extension);
		if (!extension)
			return false;
		__u32 bytes = sizeof(*extension);
		if (p->protocol == IPPROTO_FRAGMENT) {
			p->number = bpf_ntohl(extension->id);
			p->fragment = extension->fragment;
			p->later = extension->fragment & bpf_htons(0xfff8);
		} else {
			bytes += extension->words * 8;
			c->at += extension->words * 8;
		}
		p->headers += bytes;
		p->protocol = extension->next;
		if (p->later)
			break;
	}
	p->transport = c->at;
	return p->headers <= p->length;
}

/* Gives a packet back the DSCP of its flow. */
static __always_inline void restore(void *header, bool v6, __u8 dscp)
{
	if (v6) {
		struct ipv6 *ip = header;
		ip->word = (ip->word & ~bpf_htonl(IPV6_DSCP_MASK)) | bpf_htonl((__u32)dscp << IPV6_DSCP_SHIFT);
		return;
	}
	struct ipv4 *ip = header;
	__u16 *words = (__u16 *)ip, before = words[0]; /* version, length, ToS */
	ip->tos = dscp << 2 | (ip->tos & 3);
	ip->checksum = checksum_after(ip->checksum, before, words[0]);
}

/* Whether a frame is to this host. One that is not, of a next hop that the sender had
 * wrong, would be dropped by the stack, and must not be the first of its replicas. */
static __always_inline bool is_ours(struct xdp_md *ctx, const struct ethernet *ethernet)
{
	__u32 interface = ctx->ingress_ifindex;
	struct station *station = bpf_map_lookup_elem(&stations, &interface);
	__u8 difference = 0;

	if (!station)
		return true;
#pragma unroll
	for (int i = 0; i < 6; i++)
		difference |= station->address[i] ^ ethernet->destination[i];
	return !difference;
}

/* Tells user space. It polls: waking it for each packet would cost more than all else. */
static __always_inline void report(struct receiver_counters *counts, const struct arrival_record *arrival)
{
	struct arrival_record *record = bpf_ringbuf_reserve(&arrivals, sizeof(*record), 0);

	if (!record) {
		counts->ring_full++;
		return;
	}
	*record = *arrival;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

/*
 * eliminate: lets the first replica of each packet pass, drops the later ones.
 * Hook:     native XDP of the interfaces that replicas come in by.
 * Input:    Ethernet, up to two VLAN tags, IPv4 or IPv6 with a path's DSCP, fragments included.
 * Maps:     reads flows, stations; writes replicas, flow_counts, received, arrivals.
 * Verdicts: PASS the first replica, its DSCP restored; DROP later ones; PASS all else, untouched.
 */
SEC("xdp")
int eliminate(struct xdp_md *ctx)
{
	struct cursor c = { (void *)(long)ctx->data, (void *)(long)ctx->data_end };
	struct receiver_counters *counts;
	struct address destination;
	struct parsed p = {};
	__u32 zero = 0, dscp;
	__u64 hash = seed;
	bool v6 = false;

	struct ethernet *ethernet = TAKE(&c, struct ethernet);
	if (!ethernet)
		return XDP_PASS;
	__be16 type = ethernet->type;
	if (skip_tags(&c, &type) < 0)
		return XDP_PASS;
	p.ip = c.at;
	if (type == bpf_htons(ETH_P_IP)) {
		struct ipv4 *ip = TAKE(&c, struct ipv4);
		if (!ip)
			return XDP_PASS;
		dscp = ip->tos >> 2;
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		struct ipv6 *ip = TAKE(&c, struct ipv6);
		if (!ip)
			return XDP_PASS;
		dscp = bpf_ntohl(ip->word) >> IPV6_DSCP_SHIFT & 0x3f;
		v6 = true;
	} else {
		return XDP_PASS;
	}
	if ((dscp & ((1 << CODEPOINT_STEP_BITS) - 1)) != CODEPOINT_BASE || dscp > CODEPOINT_LAST)
		return XDP_PASS;
	__u32 path = dscp >> CODEPOINT_STEP_BITS;

	counts = bpf_map_lookup_elem(&received, &zero);
	if (!counts)
		return XDP_PASS;
	if (v6)
		destination = ((struct ipv6 *)p.ip)->destination;
	else
		map_address(&destination, ((struct ipv4 *)p.ip)->destination);
	struct flow *flow = bpf_map_lookup_elem(&flows, &destination);
	if (!flow) {
		counts->unknown++;
		return XDP_PASS;
	}
	if (!is_ours(ctx, ethernet)) {
		counts->misaddressed++;
		return XDP_PASS;
	}

	__u16 id = 0;
	if (v6) {
		struct ipv6 *ip = p.ip;
		p.headers = sizeof(*ip);
		p.length = sizeof(*ip) + bpf_ntohs(ip->payload);
		p.protocol = ip->next;
		p.number = bpf_ntohl(ip->word) & IPV6_LABEL_MASK;
		if (bpf_ntohl(ip->word) >> 28 != 6 || !parse_extensions(&c, &p))
			goto truncated;
		hash = mix(hash, load64(&ip->source.word[0]));
		hash = mix(hash, load64(&ip->source.word[2]));
		hash = mix(hash, load64(&ip->destination.word[0]));
		hash = mix(hash, load64(&ip->destination.word[2]));
	} else {
		struct ipv4 *ip = p.ip;
		p.headers = ip->words * 4;
		p.length = bpf_ntohs(ip->length);
		p.protocol = ip->protocol;
		p.number = id = bpf_ntohs(ip->id);
		p.fragment = ip->fragment;
		p.later = ip->fragment & bpf_htons(IPV4_OFFSET);
		if (ip->version != 4 || p.headers < sizeof(*ip) || p.headers > p.length)
			goto truncated;
		p.transport = p.ip + p.headers;
		hash = mix(hash, (__u64)ip->source << 32 | ip->destination);
	}
	hash = mix(hash, (__u64)p.number << 32 | p.fragment << 16 | p.length);
	hash = mix(hash, p.headers << 8 | p.protocol);
	if (!mix_payload(&hash, &p, c.end))
		goto truncated;
	hash = mix(hash, hash >> 29);

	__u64 time = bpf_ktime_get_ns();
	__u32 flow_index = flow->id & (MAX_FLOWS - 1);
	struct flow_counters *flow_counters = bpf_map_lookup_elem(&flow_counts, &flow_index);
	if (!flow_counters)
		return XDP_PASS;
	OPAQUE(path);
	path &= MAX_PATHS - 1; /* here: Linux 5.15 forgets the bounds of what was on the stack as 32 bits */
	struct path_arrived *arrived = &flow_counters->path[path];
	struct arrival_record arrival = {
		.key = hash,
		.time = time,
		.flow = flow->id,
		.id = id,
		.length = p.length,
		.path = path,
	};
	arrived->bytes += p.length;
	if (!(flow->paths >> path & 1)) {
		arrival.flags = ARRIVAL_OUTSIDE;
		arrived->outside++;
	}

	switch (claim(hash, path, time >> SLOT_UNIT_SHIFT)) {
	case CLAIM_TWICE:
		arrival.flags |= ARRIVAL_TWICE;
		arrived->twice++;
		/* fallthrough */
	case CLAIM_LATE:
		arrived->dropped++;
		report(counts, &arrival);
		return XDP_DROP;
	case CLAIM_LOST:
		counts->races++;
		break;
	case CLAIM_EVICTED:
		counts->evicted++;
		break;
	case CLAIM_FIRST:
		break;
	}
	arrived->passed++;
	arrival.flags |= ARRIVAL_PASSED;
	report(counts, &arrival);
	restore(p.ip, v6, flow->dscp);
	return XDP_PASS;

truncated:
	counts->truncated++;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
