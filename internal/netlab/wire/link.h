// One direction of an emulated path, as a model without I/O: packets go in with the
// time they arrived, and come out with the time they must leave.
//
//   arrival → loss → queue (drop-tail) → server (rate) → delay line → departure
//
// All times are nanoseconds of one clock of the caller's, and may be virtual.
#ifndef HOLOCAST_NETLAB_LINK_H
#define HOLOCAST_NETLAB_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "histogram.h"

#define LINK_NEVER INT64_MAX

// What a link is like from a moment on.
struct link_conditions {
	int64_t at;             // from when; INT64_MIN: from the beginning
	double rate;            // bit/s, 0: packets take no time to send and never queue
	int64_t delay;          // constant delay, unless varied
	bool varied;            // the delay is drawn anew from [delay_min, delay_max] …
	int64_t delay_min, delay_max;
	int64_t every_min, every_max; // … whenever a time drawn from this range has passed
	double loss_good;       // probability of loss in Gilbert–Elliott's good state,
	double loss_bad;        // and in the bad one,
	double to_bad, to_good; // which begins and ends with these probabilities, a packet
	double loss;            // share of packets lost in the long run, for the statistics
	int64_t queue_bytes;    // most bytes queued and being sent, 0: any
	int64_t queue_packets;  // most packets queued and being sent, 0: any
	int64_t overhead;       // bytes a packet takes on the wire beyond its frame
	bool reorder;           // a packet whose delay was drawn shorter may overtake
};

enum link_verdict {
	LINK_QUEUED,
	LINK_LOST,       // in the good state
	LINK_LOST_BURST, // in the bad state
	LINK_QUEUE_FULL,
	LINK_NO_MEMORY,
	LINK_VERDICTS,
};

struct link_packet {
	int64_t arrival, due;
	uint32_t length; // bytes of the Ethernet frame, without its check sequence
	uint32_t slot;   // the caller's
};

struct link_stats {
	uint64_t packets[LINK_VERDICTS], bytes[LINK_VERDICTS]; // that arrived, by verdict
	double asked;              // losses to expect of the packets that arrived
	struct histogram wait;     // ns in the queue before being sent
	struct histogram occupied; // bytes a packet found queued and being sent
};

struct link;

// link_new takes a copy of count ≥ 1 conditions, in the order of their times.
struct link *link_new(const struct link_conditions *conditions, size_t count, uint64_t seed);
void link_free(struct link *);

// link_change replaces what was to come with count ≥ 1 conditions, copied.
bool link_change(struct link *, const struct link_conditions *conditions, size_t count);

// link_push lets a packet of length bytes arrive, no earlier than the one before.
enum link_verdict link_push(struct link *, int64_t arrival, uint32_t length, uint32_t slot);

// link_pop takes the first packet due by now, if there is one.
bool link_pop(struct link *, int64_t now, struct link_packet *);

// link_next is when to call link_pop next: no packet is due earlier, as far as is known.
int64_t link_next(const struct link *);

// link_mark forgets the waits and the queues of packets so far.
void link_mark(struct link *);

int64_t link_shortest_delay(const struct link *); // a packet can have now
uint64_t link_queued_bytes(const struct link *); // queued and being sent
const struct link_stats *link_statistics(const struct link *);

#endif
