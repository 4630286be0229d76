// One direction of an emulated path, as a model without I/O: packets enter with their arrival time
// and leave with their departure time.
//
//   arrival → loss → queue (drop-tail) → server (rate) → delay line → departure
//
// All times are nanoseconds on the caller's clock, which may be virtual.
#ifndef HOLOCAST_NETLAB_LINK_H
#define HOLOCAST_NETLAB_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "histogram.h"

#define LINK_NEVER INT64_MAX

// A link's conditions from a given time on.
struct link_conditions {
	int64_t at;             // start; INT64_MIN = from the beginning
	double rate;            // bit/s; 0 = no serialization delay, no queue
	int64_t delay;          // constant delay, unless varied
	bool varied;            // a new delay is drawn from [delay_min, delay_max]
	int64_t delay_min, delay_max;
	int64_t every_min, every_max; // after each interval drawn from this range
	double loss_good;       // probability of loss in Gilbert–Elliott's good state
	double loss_bad;        // … and in the bad state
	double to_bad, to_good; // per packet: probabilities of entering and leaving the bad state
	double loss;            // long-run loss, for the statistics
	int64_t queue_bytes;    // maximum bytes queued or in transmission; 0 = unlimited
	int64_t queue_packets;  // maximum packets queued or in transmission; 0 = unlimited
	int64_t overhead;       // bytes per packet on the wire beyond its frame
	bool reorder;           // a packet may overtake one with a longer delay
	double stray_share;     // probability of a detour
	int64_t stray_delay;    // of the detour, on which later packets overtake
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
	uint32_t length; // bytes of the Ethernet frame, without frame check sequence
	uint32_t slot;   // for the caller
	uint16_t tries;  // transmissions over Wi-Fi
	bool done;       // delivered over Wi-Fi or lost, perhaps waiting for earlier packets
	bool lost;       // after the last retransmission: it leaves, but must not be delivered
};

struct link_stats {
	uint64_t packets[LINK_VERDICTS], bytes[LINK_VERDICTS]; // arrivals by verdict
	double asked;              // expected losses among the arrivals
	struct histogram wait;     // ns in the queue before transmission
	struct histogram occupied; // bytes queued or in transmission, as seen by arrivals
};

struct link;

// link_new copies count ≥ 1 conditions, ordered by time.
struct link *link_new(const struct link_conditions *conditions, size_t count, uint64_t seed);
void link_free(struct link *);

// link_change replaces the future conditions with count ≥ 1 others. It copies them.
bool link_change(struct link *, const struct link_conditions *conditions, size_t count);

// link_push adds a packet of length bytes, which arrives no earlier than its predecessor.
enum link_verdict link_push(struct link *, int64_t arrival, uint32_t length, uint32_t slot);

// link_pop removes the first packet due by now, if any.
bool link_pop(struct link *, int64_t now, struct link_packet *);

// link_next returns when to call link_pop next: no packet is due earlier under the current
// conditions.
int64_t link_next(const struct link *);

// link_mark clears the distributions of waits and queues.
void link_mark(struct link *);

int64_t link_shortest_delay(const struct link *); // of any packet arriving now
uint64_t link_queued_bytes(const struct link *); // including the packet in transmission
const struct link_stats *link_statistics(const struct link *);

#endif
