// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/*
 * Signalling packets: Qian et al., section III-A step 2, with an HMAC and a nonce added.
 * netfunc/signal describes the message.
 */
#ifndef HOLOCAST_SIGNALLING_H
#define HOLOCAST_SIGNALLING_H

#include "packet.h"
#include "sender_maps.h"
#include "sha256.h"
#include "verdict.h"

/* True if the stack would forward the packet rather than deliver it. */
static __always_inline bool is_in_transit(struct __sk_buff *skb, const struct iphdr *ip)
{
	struct bpf_fib_lookup route = {
		.family = AF_INET,
		.ifindex = skb->ifindex,
		.ipv4_src = ip->saddr,
		.ipv4_dst = ip->daddr,
	};
	long result = bpf_fib_lookup(skb, &route, sizeof(route), 0);

	return result == BPF_FIB_LKUP_RET_SUCCESS || result == BPF_FIB_LKUP_RET_NO_NEIGH ||
	       result == BPF_FIB_LKUP_RET_UNSUPP_LWT || result == BPF_FIB_LKUP_RET_FRAG_NEEDED;
}

static __always_inline bool is_zero_address(const struct address *a)
{
	return !a->word[0] && !a->word[1] && !a->word[3] && (!a->word[2] || a->word[2] == bpf_htonl(0xffff));
}

static __always_inline bool is_authentic(const struct signal_message *message)
{
	struct sha256_work work;
	__u32 difference = 0;

	if (!signal_keyed)
		return false;
	hmac_sha256(&work, signal_inner, signal_outer, (const __be32 *)message);
#pragma unroll
	for (int i = 0; i < 8; i++) /* no early exit: constant time */
		difference |= work.state[i] ^ bpf_ntohl(message->hmac[i]);
	return !difference;
}

static __always_inline bool is_above_highest(__u64 nonce)
{
	__u32 zero = 0;
	__u64 *highest = bpf_map_lookup_elem(&nonces, &zero);

	return highest && nonce > *(volatile __u64 *)highest;
}

/* Raises the highest nonce. Returns false if nonce is not higher. */
static __always_inline bool raise_nonce(__u64 nonce)
{
	__u32 zero = 0;
	__u64 *highest = bpf_map_lookup_elem(&nonces, &zero);

	if (!highest)
		return false;
#pragma unroll
	for (int i = 0; i < 4; i++) {
		__u64 old = *(volatile __u64 *)highest;

		if (nonce <= old)
			return false;
		if (__sync_val_compare_and_swap(highest, old, nonce) == old)
			return true;
	}
	return false; /* lost four races */
}

/*
 * Stores a policy. Returns false if the map is full. Of concurrent updates, the highest nonce wins.
 */
static __always_inline bool set_policy(const struct address *destination, __u8 bits, __u64 nonce)
{
	struct policy *policy = bpf_map_lookup_elem(&policies, destination);

	if (!policy) {
		struct policy first = {};

		bpf_map_update_elem(&policies, destination, &first, BPF_NOEXIST);
		policy = bpf_map_lookup_elem(&policies, destination);
		if (!policy)
			return false;
	}
	bpf_spin_lock(&policy->lock);
	if (nonce > policy->nonce) {
		policy->bits = bits;
		policy->nonce = nonce;
	}
	bpf_spin_unlock(&policy->lock);
	return true;
}

static __always_inline void report_signal(struct sender_counters *counts, const struct signal_message *message,
					  __be32 source, bool full)
{
	struct signal_record *record = bpf_ringbuf_reserve(&signals, sizeof(*record), 0);

	if (!record) {
		counts->ring_full++;
		return;
	}
	*record = (struct signal_record){
		.time = bpf_ktime_get_ns(),
		.nonce = bpf_be64_to_cpu(message->nonce),
		.destination = message->destination,
		.source = source,
		.version = message->version,
		.bits = message->bits,
		.full = full,
	};
	bpf_ringbuf_submit(record, 0);
}

/* Consumes a signalling packet for this host. Returns PASS for any other packet. */
static __always_inline int take_signal(struct __sk_buff *skb, struct sender_counters *counts, const struct packet *p)
{
	const struct iphdr *ip = p->ip;
	__u32 offset = p->offset + p->headers;
	struct signal_message message;
	struct udp udp;

	if (p->v6 || p->tags || p->class != SIGNAL_TOS || p->protocol != IPPROTO_UDP || p->later)
		return PASS;
	if (bpf_skb_load_bytes(skb, offset, &udp, sizeof(udp)) || udp.destination != bpf_htons(signal_port))
		return PASS;
	if (is_in_transit(skb, ip)) {
		counts->foreign++;
		return PASS;
	}
	if (udp.length != bpf_htons(sizeof(udp) + SIGNAL_SIZE) || p->fragment & bpf_htons(IPV4_MF) ||
	    bpf_skb_load_bytes(skb, offset + sizeof(udp), &message, sizeof(message)) ||
	    message.magic != bpf_htonl(SIGNAL_MAGIC) ||
	    (message.version == SIGNAL_VERSION && (message.reserved || is_zero_address(&message.destination)))) {
		counts->malformed++;
		return DROP;
	}
	if (!is_authentic(&message)) {
		counts->spoofed++;
		return DROP;
	}

	__u64 nonce = bpf_be64_to_cpu(message.nonce);

	if (message.version != SIGNAL_VERSION) {
		counts->other_version++;
		if (is_above_highest(nonce)) /* replays must not fill the ring */
			report_signal(counts, &message, ip->saddr, false);
		return DROP;
	}
	if (!raise_nonce(nonce)) {
		counts->replayed++;
		return DROP;
	}
	counts->applied++;
	bool full = !set_policy(&message.destination, message.bits, nonce);
	if (full)
		counts->policy_full++;
	report_signal(counts, &message, ip->saddr, full);
	return DROP;
}

#endif
