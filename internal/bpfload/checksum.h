// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/* Incremental Internet checksum (RFC 1624). */
#ifndef HOLOCAST_CHECKSUM_H
#define HOLOCAST_CHECKSUM_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* Updates a header checksum after a change of one 16-bit word (RFC 1624, equation 3). */
static __always_inline __sum16 checksum_after(__sum16 checksum, __u16 old, __u16 new)
{
	__u32 sum = (__u16)~checksum + (__u16)~old + new;

	sum = (sum & 0xffff) + (sum >> 16);
	sum += sum >> 16;
	return ~sum;
}

/* Returns the amount to add to an unfolded sum after a change of one 32-bit word. */
static __always_inline __wsum sum_of_change(__u32 old, __u32 new)
{
	__u64 sum = (__u64)(__u32)~old + new;

	return (__u32)sum + (__u32)(sum >> 32);
}

#endif
