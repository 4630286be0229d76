// The real-time thread that carries packets over emulated links between packet sockets.
//
// It is written in C because a due packet must leave immediately: a goroutine is preempted every 10
// ms and resumed by a thread without real-time priority.
#ifndef HOLOCAST_NETLAB_FORWARD_H
#define HOLOCAST_NETLAB_FORWARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "link.h"

enum {
	FORWARD_LINKS = 64, // maximum links per forwarder
	FORWARD_ROWS = 128, // rows buffered for the reader
	FORWARD_FRAME = 2048, // bytes per ring frame and per packet slot
	FORWARD_RING_FRAMES = 4096,
};

// A link between two packet sockets bound to devices. It receives on in and sends on out.
struct forward_port {
	int in, out;
	struct link *link;
};

// A link's counters for one interval.
struct forward_counts {
	uint64_t packets_in, bytes_in, packets_out, bytes_out;
	uint64_t lost, lost_burst, queue_full;
	uint64_t failed; // for other reasons: see forward_faults
	uint64_t delay_sum; // ns from arrival to departure, summed over packets out
	uint64_t delay_min, delay_max;
	uint64_t jitter_sum; // ns, differences between the delays of successive packets, summed
	uint64_t queue_max; // bytes
};

struct forward_row {
	int64_t time; // end of the interval, CLOCK_MONOTONIC
	struct forward_counts links[FORWARD_LINKS];
};

// Packets dropped for reasons other than the conditions.
struct forward_faults {
	uint64_t ring;     // arrived faster than the thread read them
	uint64_t memory;   // no free slot
	uint64_t oversize; // longer than a slot: segmentation was left to a device
	uint64_t send;     // rejected by the kernel
};

struct forward_change;

struct forwarder {
	// Set before forward_run.
	struct forward_port ports[FORWARD_LINKS];
	int count;
	int64_t interval; // ns per row
	int priority;     // of SCHED_FIFO; 0 = keep the thread's scheduling
	int processor;    // CPU to run on; 0 = any
	size_t slots;     // maximum packets held

	// Read and written while forward_run runs.
	atomic_int running; // set once packets are forwarded
	atomic_int stop;
	atomic_int mark; // set to restart the distributions of delays, waits and queues
	_Atomic(struct forward_change *) changes[FORWARD_LINKS]; // consumed and freed by the thread
	atomic_uint_fast64_t rows_written, rows_read;
	struct forward_row rows[FORWARD_ROWS];
	int64_t started; // CLOCK_MONOTONIC

	// Valid after forward_run.
	int scheduling_error; // errno of requesting SCHED_FIFO
	int error;            // errno that ended the run; 0 = asked to stop
	const char *failed;   // call that set error
	uint64_t cpu;         // CPU time of the thread, ns
	uint64_t wakes;       // number of sleeps
	uint64_t rows_lost;   // dropped because the reader was too slow
	struct histogram late[FORWARD_LINKS]; // |departed − due|, ns
	struct histogram delay[FORWARD_LINKS]; // departed − arrived, ns
	struct forward_faults faults[FORWARD_LINKS];
	uint64_t last_delay[FORWARD_LINKS]; // ns; 0 = no packet yet
};

struct forwarder *forward_new(void);
void forward_free(struct forwarder *);

// forward_run forwards until stop is set or an error occurs. It sets error to 0 or an errno.
void forward_run(struct forwarder *);

// These may be called from another thread while forward_run runs, each from one thread at a time.

bool forward_running(const struct forwarder *);
void forward_stop(struct forwarder *);
void forward_mark(struct forwarder *);

// forward_set replaces a link's future conditions with count ≥ 1 others. It copies them.
bool forward_set(struct forwarder *, int link, const struct link_conditions *, size_t count);

// forward_read returns the oldest unread row, valid until forward_read_done, or NULL.
const struct forward_row *forward_read(const struct forwarder *);
void forward_read_done(struct forwarder *);

#endif
