//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
#include <linux/bpf.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>

#define SLOTS 256
#define ID_LENGTH 7 /* of the relay's connection IDs; the first byte is the slot */

/* Sockets by slot. The kernel removes closed sockets. */
struct {
	__uint(type, BPF_MAP_TYPE_REUSEPORT_SOCKARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, __u64);
} sockets SEC(".maps");

/* The slots that accept new connections. User space may write the struct while a program reads it,
 * since the kernel copies all eight bytes atomically. */
struct accepting {
	__u32 first;
	__u32 count;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct accepting);
} acceptors SEC(".maps");

/* Reads the slot from a packet's connection ID. Returns false if the ID is not the relay's; IDs
 * chosen by clients have at least eight bytes (RFC 9000 section 7.2). */
static __always_inline bool slot_of(const struct sk_reuseport_md *md, __u32 *slot)
{
	__u8 header[7]; /* RFC 8999: flags and, in long headers, version and the ID's length */

	if (bpf_skb_load_bytes(md, sizeof(struct udphdr), header, sizeof(header)))
		return false;
	if (header[0] & 0x80) {
		*slot = header[6];
		return header[5] == ID_LENGTH;
	}
	*slot = header[1];
	return true;
}

/*
 * steer selects the socket for a packet.
 * Hook:     socket selection for a UDP address shared by several sockets (SO_REUSEPORT).
 * Input:    the packet from its UDP header on.
 * Reads:    sockets, acceptors.
 * Writes:   no maps.
 * Verdicts: SK_PASS to the owner of the packet's connection ID, otherwise to a socket that accepts new
 *           connections, the same one for each client address; SK_DROP if there is none.
 */
SEC("sk_reuseport")
int steer(struct sk_reuseport_md *md)
{
	__u32 zero = 0, slot;

	if (slot_of(md, &slot) && !bpf_sk_select_reuseport(md, &sockets, &slot, 0))
		return SK_PASS;
	const struct accepting *a = bpf_map_lookup_elem(&acceptors, &zero);
	if (!a)
		return SK_DROP;
	__u64 range = *(const volatile __u64 *)a;
	__u32 count = range >> 32;
	if (!count)
		return SK_DROP;
	slot = (__u32)range + md->hash % count;
	return bpf_sk_select_reuseport(md, &sockets, &slot, 0) ? SK_DROP : SK_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
