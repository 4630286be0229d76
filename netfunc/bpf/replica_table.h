// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/* The table of packets seen. A bucket has eight slots and fills one cache line. */
#ifndef HOLOCAST_REPLICA_TABLE_H
#define HOLOCAST_REPLICA_TABLE_H

#include "receiver_maps.h"
#include "replica_key.h"

enum claim {
	CLAIM_FIRST,
	CLAIM_EVICTED, /* first, and replaced an entry that was not stale */
	CLAIM_LATE,
	CLAIM_TWICE, /* late, on a path that already delivered the packet */
	CLAIM_LOST, /* lost every race to other processors */
};

/*
 * Claims a packet for the replica on a path and returns an enum claim; now is in time units, not
 * wrapped. A slot stores the low bits of the time. The high bits are XORed into its tag, so a
 * slot from before a wrap does not match. As a global function it is verified only once, rather
 * than for every state that parsing can end in.
 */
__noinline int claim(__u64 hash, __u32 path, __u64 now)
{
	__u32 index = hash & bucket_mask;
	struct bucket *bucket = bpf_map_lookup_elem(&replicas, &index);

	if (!bucket)
		return CLAIM_LOST;
	__u64 tag = hash >> (64 - SLOT_TAG_BITS);
	__u64 mark = 1ULL << (SLOT_TAG_BITS + path);
	__u64 ahead = now + SLOT_AHEAD; /* ages count from the latest time possible */
	__u64 claimed = now << SLOT_TIME_SHIFT | mark | ((tag ^ now >> SLOT_TIME_BITS) & SLOT_TAG_MASK);

	for (int try = 0; try < SLOT_TRIES; try++) {
		__u32 oldest = 0, victim = 0;
		__u64 replaced = 0;
		bool again = false;

#pragma unroll
		for (__u32 i = 0; i < SLOT_WAYS; i++) {
			__u64 slot = *(volatile __u64 *)&bucket->slot[i];
			__u32 age = (ahead - (slot >> SLOT_TIME_SHIFT)) & SLOT_TIME_MASK;
			__u64 turn = (ahead - age) >> SLOT_TIME_BITS;

			if (!slot) {
				age = SLOT_TIME_MASK + 1;
			} else if (!((slot ^ tag ^ turn) & SLOT_TAG_MASK) && age <= stale + SLOT_AHEAD) {
				if (slot & mark)
					return CLAIM_TWICE;
				if (__sync_val_compare_and_swap(&bucket->slot[i], slot, slot | mark) == slot)
					return CLAIM_LATE;
				again = true;
				break;
			}
			if (age > oldest) {
				oldest = age;
				victim = i;
				replaced = slot;
			}
		}
		if (again)
			continue;
		if (__sync_val_compare_and_swap(&bucket->slot[victim & (SLOT_WAYS - 1)], replaced, claimed) == replaced)
			return oldest <= stale + SLOT_AHEAD ? CLAIM_EVICTED : CLAIM_FIRST;
	}
	return CLAIM_LOST;
}

/*
 * Claims a packet like claim. IPv6 packets other than fragments have no packet ID, so a repetition
 * on one path is an equal packet, not the same one. The nth of them on one path matches the nth on
 * every other path and gets its own key. As many packets pass as the best path delivers, up to
 * MAX_EQUAL.
 */
static __always_inline int claim_packet(__u64 *key, bool numbered, __u32 path, __u64 now)
{
	__u64 first = *key;
	int result = claim(first, path, now);

	if (numbered)
		return result;
	for (int i = 1; i < MAX_EQUAL && result == CLAIM_TWICE; i++) {
		*key = mix(first, i);
		result = claim(*key, path, now);
	}
	return result;
}

#endif
