// A histogram of values ≥ 0 with 3 % precision: 32 buckets per power of two.
#ifndef HOLOCAST_NETLAB_HISTOGRAM_H
#define HOLOCAST_NETLAB_HISTOGRAM_H

#include <stdint.h>

enum {
	HISTOGRAM_BITS = 5,
	HISTOGRAM_BUCKETS = (64 - HISTOGRAM_BITS) << HISTOGRAM_BITS,
};

struct histogram {
	uint64_t count, max;
	uint32_t buckets[HISTOGRAM_BUCKETS];
};

static inline unsigned histogram_bucket(uint64_t value)
{
	if (value < (2u << HISTOGRAM_BITS))
		return (unsigned)value;
	unsigned shift = 63 - HISTOGRAM_BITS - (unsigned)__builtin_clzll(value);
	return (shift << HISTOGRAM_BITS) + (unsigned)(value >> shift);
}

static inline void histogram_add(struct histogram *h, int64_t signed_value)
{
	uint64_t value = signed_value > 0 ? (uint64_t)signed_value : 0;
	h->count++;
	if (value > h->max)
		h->max = value;
	h->buckets[histogram_bucket(value)]++;
}

#endif
