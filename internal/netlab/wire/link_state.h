// The state of a link, shared by the models of its server: a constant rate (link.c) and a Wi-Fi
// medium (wifi.c).
#ifndef HOLOCAST_NETLAB_LINK_STATE_H
#define HOLOCAST_NETLAB_LINK_STATE_H

#include <math.h>

#include "link.h"

struct random {
	uint64_t state[2];
};

struct link {
	// packets[head, sent) are in the delay line and packets[sent, tail) in the queue. packets[sent]
	// is being sent. Indices only grow and are masked.
	struct link_packet *packets;
	uint32_t room, head, sent, tail;

	struct link_conditions now;
	struct link_conditions *ahead; // future conditions: ahead[next, count)
	size_t next, count;

	uint64_t queued_bytes;
	int64_t free_at; // when the server is free, or its progress on the first packet
	double bits;     // remaining bits of the first packet; 0 = not started
	int64_t last_due;

	int64_t delay; // last drawn
	int64_t draw_at;
	bool bad; // Gilbert–Elliott state

	struct wifi *wifi; // serves the queue instead of a rate, if not NULL
	int station;       // on the medium

	struct random random;
	struct link_stats stats;
};

// xoroshiro128+ (Blackman and Vigna), seeded by splitmix64.
static inline uint64_t random_next(struct random *r)
{
	uint64_t a = r->state[0], b = r->state[1], sum = a + b;
	b ^= a;
	r->state[0] = (a << 24 | a >> 40) ^ b ^ b << 16;
	r->state[1] = b << 37 | b >> 27;
	return sum;
}

static inline void random_seed(struct random *r, uint64_t seed)
{
	for (int i = 0; i < 2; i++) {
		uint64_t z = seed += 0x9e3779b97f4a7c15;
		z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
		z = (z ^ z >> 27) * 0x94d049bb133111eb;
		r->state[i] = z ^ z >> 31;
	}
}

static inline double random_unit(struct random *r)
{
	return (double)(random_next(r) >> 11) * 0x1p-53;
}

static inline int64_t random_between(struct random *r, int64_t min, int64_t max)
{
	return max <= min ? min : min + (int64_t)(random_unit(r) * (double)(max - min + 1));
}

// random_exponential draws a time in ns.
static inline int64_t random_exponential(struct random *r, double mean)
{
	return 1 + (int64_t)(-mean * log(1 - random_unit(r)));
}

static inline struct link_packet *packet_at(const struct link *l, uint32_t index)
{
	return &l->packets[index & (l->room - 1)];
}

// link_leave moves the first packet of the queue, sent at time, to the delay line.
void link_leave(struct link *, int64_t time);

#endif
