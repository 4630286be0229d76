//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "checksum.h"
#include "packet.h"
#include "receiver_maps.h"
#include "replica_key.h"
#include "replica_table.h"

/* Restores the flow's DSCP. */
static __always_inline void restore(const struct packet *p, __u8 dscp)
{
	if (p->v6) {
		struct ipv6 *ip = p->ip;
		ip->word = (ip->word & ~bpf_htonl(IPV6_DSCP_MASK)) | bpf_htonl((__u32)dscp << IPV6_DSCP_SHIFT);
		return;
	}
	struct iphdr *ip = p->ip;
	__u16 *words = (__u16 *)ip, before = words[0]; /* version, IHL, ToS */
	ip->tos = dscp << 2 | (ip->tos & 3);
	ip->check = checksum_after(ip->check, before, words[0]);
}

/*
 * True if a frame is addressed to this host. Other frames come from a sender with a wrong next hop
 * and are dropped by the stack, so they must not count as the first replica.
 */
static __always_inline bool is_ours(struct xdp_md *ctx, const struct ethernet *ethernet)
{
	__u32 index = ctx->ingress_ifindex;
	struct interface *interface = bpf_map_lookup_elem(&interfaces, &index);
	__u8 difference = 0;

	if (!interface)
		return true;
#pragma unroll
	for (int i = 0; i < 6; i++)
		difference |= interface->address[i] ^ ethernet->destination[i];
	return !difference;
}

/*
 * Reports an arrival to user space, which polls the ring, since a wakeup per packet would cost more
 * than the rest of the program.
 */
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
 * eliminate passes the first replica of each packet and drops the others.
 * Hook:     native XDP, on interfaces that receive replicas.
 * Input:    Ethernet, up to two VLAN tags, IPv4 or IPv6 with a path's DSCP, including fragments.
 * Reads:    flows, interfaces.
 * Writes:   replicas, flow_counts, received, arrivals.
 * Verdicts: PASS the first replica, with its DSCP restored; DROP later ones; PASS other packets unchanged.
 */
SEC("xdp")
int eliminate(struct xdp_md *ctx)
{
	struct cursor c = { (void *)(long)ctx->data, (void *)(long)ctx->data_end };
	struct receiver_counters *counts;
	struct address destination;
	struct packet p;
	__u32 zero = 0;
	__u64 key;

	if (parse_packet(&c, &p) != PARSE_IP)
		return XDP_PASS;
	__u32 dscp = p.class >> 2;
	if ((dscp & ((1 << CODEPOINT_STEP_BITS) - 1)) != CODEPOINT_BASE || dscp > CODEPOINT_LAST)
		return XDP_PASS;
	__u32 path = dscp >> CODEPOINT_STEP_BITS;

	counts = bpf_map_lookup_elem(&received, &zero);
	if (!counts)
		return XDP_PASS;
	destination_of(&p, &destination);
	struct flow *flow = bpf_map_lookup_elem(&flows, &destination);
	if (!flow) {
		counts->unknown++;
		return XDP_PASS;
	}
	if (!is_ours(ctx, p.ethernet)) {
		counts->misaddressed++;
		return XDP_PASS;
	}
	__u32 id = p.v6 ? 0 : p.number; /* before an extension header sets another one */
	if (!p.valid || !find_transport(&c, &p) || !replica_key(ctx, &key, seed, &p, c.end)) {
		counts->truncated++;
		return XDP_PASS;
	}

	bool numbered = !p.v6 || p.fragment;
	__u64 time = bpf_ktime_get_ns();
	__u32 flow_index = flow->id & (MAX_FLOWS - 1);
	struct flow_counters *flow_counters = bpf_map_lookup_elem(&flow_counts, &flow_index);
	if (!flow_counters)
		return XDP_PASS;
	OPAQUE(path);
	path &= MAX_PATHS - 1; /* must be here, as Linux 5.15 loses the bounds of 32-bit stack values */
	struct path_arrived *arrived = &flow_counters->path[path];
	struct arrival_record arrival = {
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

	int result = claim_packet(&key, numbered, path, time >> SLOT_UNIT_SHIFT);
	arrival.key = key;
	switch (result) {
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
	restore(&p, flow->dscp);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
