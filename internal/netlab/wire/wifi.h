// A Wi-Fi medium that several links share: stations contend by CSMA/CA with binary exponential
// backoff, send aggregates at adapted rates, and retransmit lost frames. It replaces the
// server of its links.
//
//   queue → backoff → exchange (preamble, A-MPDU, SIFS, block acknowledgment) → delay line
//
// An exchange of one station fails frame by frame with the error rate of its signal-to-noise ratio;
// when backoffs end in the same slot, all their frames fail. Receivers deliver frames in order: a
// frame waits for retransmissions of earlier ones. Every station hears every other one; RTS and CTS,
// A-MSDUs, lost acknowledgments and capture are not modelled.
#ifndef HOLOCAST_NETLAB_WIFI_H
#define HOLOCAST_NETLAB_WIFI_H

#include "link.h"

enum {
	WIFI_RATES = 32,    // maximum rates
	WIFI_STATIONS = 128, // maximum stations per medium, with loads
};

enum wifi_adaptation {
	WIFI_FIXED,
	WIFI_MINSTREL, // from statistics of past frames
	WIFI_SNR,      // knows the signal-to-noise ratio
};

struct wifi_config {
	int64_t slot, sifs, aifs;
	int cw_min, cw_max; // slots; a backoff is drawn from [0, window]
	int attempts;       // transmissions of a frame
	int64_t preamble;   // also of the PHY header
	double symbol;      // ns
	int64_t ack, block_ack; // with preamble
	int64_t longest;    // PPDU
	int frames;         // per aggregate; 1 = no aggregation
	int64_t bytes;      // per aggregate
	int header;         // bytes that a frame has in place of its Ethernet header

	int rates;
	struct {
		double bits; // per symbol
		double snr;  // dB at which 10 % of frames with 4096 bytes fail
	} rate[WIFI_RATES]; // ascending
	enum wifi_adaptation adaptation;
	int fixed;    // index of WIFI_FIXED's rate

	double snr;        // mean, dB
	double fading;     // standard deviation, dB
	int64_t coherence; // time constant of the fading's autocorrelation
	double slope;      // growth of errors below a rate's threshold, decades per dB

	double burst_share;   // of the time
	int64_t burst_length; // mean
	double burst_loss;    // of frames during a burst
};

struct wifi_stats {
	uint64_t exchanges;  // including collisions
	uint64_t collisions; // with other stations
	uint64_t frames;     // transmitted
	uint64_t retried;    // of those, not for the first time
	uint64_t dropped;    // frames lost after the last attempt
	uint64_t air;        // ns that the station's frames took
	uint64_t sent;       // bytes of frames transmitted, with their headers
	uint64_t delivered;  // bytes of Ethernet frames
};

struct wifi;

struct wifi *wifi_new(const struct wifi_config *, uint64_t seed);
void wifi_free(struct wifi *); // its links first

// wifi_attach makes a link without packets a station. It fails if there are too many.
bool wifi_attach(struct wifi *, struct link *);

// wifi_load adds a station that sends frames of length bytes (as Ethernet frames) at rate bit/s in
// Poisson arrivals, or without pause for rate 0.
bool wifi_load(struct wifi *, double rate, uint32_t length, uint64_t seed);

const struct wifi_stats *wifi_statistics(const struct wifi *, int station);
const struct wifi_stats *wifi_link_statistics(const struct link *); // NULL without a medium

// For link.c.

// wifi_run advances the medium.
void wifi_run(struct wifi *, int64_t until);

// wifi_wants reports the first packet of a station's empty queue.
void wifi_wants(struct wifi *, int station, int64_t arrival);

// wifi_next returns when the medium changes next. It returns LINK_NEVER while no link has packets.
int64_t wifi_next(const struct wifi *);

#endif
