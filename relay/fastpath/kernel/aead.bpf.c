//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/* Programs that expose the AEAD to tests. */
#include "chacha20poly1305.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct aead);
} work SEC(".maps");

static __always_inline struct aead *get_work(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&work, &zero);
}

/*
 * seal seals the text in work.
 * Hook:     BPF_PROG_TEST_RUN.
 * Input:    ignored.
 * Reads:    work.
 * Writes:   work.
 * Verdicts: 0 on success.
 */
SEC("tc")
int seal(struct __sk_buff *skb)
{
	struct aead *a = get_work();

	if (!a)
		return -1;
	aead_seal(a);
	return 0;
}

/*
 * open opens the text in work.
 * Hook:     BPF_PROG_TEST_RUN.
 * Input:    ignored.
 * Reads:    work.
 * Writes:   work.
 * Verdicts: 0 on success, 1 if the tag is wrong.
 */
SEC("tc")
int open(struct __sk_buff *skb)
{
	struct aead *a = get_work();

	if (!a)
		return -1;
	return aead_open(a, a->tag[0], a->tag[1]) ? 0 : 1;
}

/*
 * stream computes one block of key stream in work.
 * Hook:     BPF_PROG_TEST_RUN.
 * Input:    ignored.
 * Reads:    work.
 * Writes:   work.
 * Verdicts: 0 on success.
 */
SEC("tc")
int stream(struct __sk_buff *skb)
{
	struct aead *a = get_work();

	return a ? chacha20_block(&a->cipher, &a->stream) : -1;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
