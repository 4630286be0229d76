// The real-time thread that carries packets over emulated links between packet sockets.
//
// It is C because nothing may stand between a packet that is due and its departure: a
// goroutine is preempted every 10 ms and resumed by a thread without real-time priority.
#ifndef HOLOCAST_NETLAB_FORWARD_H
#define HOLOCAST_NETLAB_FORWARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "link.h"

enum {
	FORWARD_LINKS = 64, // most links of one forwarder
	FORWARD_ROWS = 128, // rows kept for the reader
	FORWARD_FRAME = 2048, // bytes of a ring's frame and of a packet's slot
	FORWARD_RING_FRAMES = 4096,
};

// A link between two packet sockets bound to devices: what in receives, out sends.
struct forward_port {
	int in, out;
	struct link *link;
};

// What a link did in one interval.
struct forward_counts {
	uint64_t packets_in, bytes_in, packets_out, bytes_out;
	uint64_t lost, lost_burst, queue_full;
	uint64_t failed; // for a reason of ours: see forward_faults
	uint64_t delay_sum; // ns from arrival to departure, of packets out
	uint64_t delay_min, delay_max;
	uint64_t queue_max; // bytes
};

struct forward_row {
	int64_t time; // end of the interval, CLOCK_MONOTONIC
	struct forward_counts links[FORWARD_LINKS];
};

// Packets that were dropped though no condition asked for it.
struct forward_faults {
	uint64_t ring;     // arrived faster than the thread took them
	uint64_t memory;   // no slot or list for them
	uint64_t oversize; // longer than a slot: segmentation was left to a device
	uint64_t send;     // the kernel did not take them
};

struct forward_change;

struct forwarder {
	// Set before forward_run.
	struct forward_port ports[FORWARD_LINKS];
	int count;
	int64_t interval; // ns of a row
	int priority;     // of SCHED_FIFO, 0: leave the thread's scheduling as it is
	int processor;    // to run on, 0: any
	size_t slots;     // most packets held at a time

	// Read and written while it runs.
	atomic_int running; // set when packets are taken
	atomic_int stop;
	atomic_int mark; // set to let the distributions of delays, waits and queues begin anew
	_Atomic(struct forward_change *) changes[FORWARD_LINKS]; // taken and freed by the thread
	atomic_uint_fast64_t rows_written, rows_read;
	struct forward_row rows[FORWARD_ROWS];
	int64_t started; // CLOCK_MONOTONIC

	// Valid after forward_run.
	int scheduling_error; // errno of asking for SCHED_FIFO
	int error;            // errno that ended the run, 0: asked to stop
	const char *failed;   // the call that set error
	uint64_t cpu;         // ns of the thread
	uint64_t wakes;       // times it slept
	uint64_t rows_lost;   // not read in time
	struct histogram late[FORWARD_LINKS]; // ns from due to departed
	struct histogram delay[FORWARD_LINKS]; // ns from arrived to departed
	struct forward_faults faults[FORWARD_LINKS];
};

struct forwarder *forward_new(void);
void forward_free(struct forwarder *);

// forward_run forwards until stop is set. It returns with error 0 or an errno.
void forward_run(struct forwarder *);

// These may be called from another thread while it runs, each from one at a time.

bool forward_running(const struct forwarder *);
void forward_stop(struct forwarder *);
void forward_mark(struct forwarder *);

// forward_set replaces what is to come of a link's conditions by count ≥ 1 others, copied.
bool forward_set(struct forwarder *, int link, const struct link_conditions *, size_t count);

// forward_read returns the oldest row not read, until forward_read_done, or NULL.
const struct forward_row *forward_read(const struct forwarder *);
void forward_read_done(struct forwarder *);

#endif
