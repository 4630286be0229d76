// Thin wrappers around libopus, whose control functions are variadic macros.
#ifndef HOLOCAST_OPUS_BINDING_H
#define HOLOCAST_OPUS_BINDING_H

#include <opus.h>

// Returns a libopus error code.
static int encoder_set(OpusEncoder *e, int channels, int bitrate)
{
	int err;

	if ((err = opus_encoder_ctl(e, OPUS_SET_BITRATE(bitrate))) != OPUS_OK ||
	    (err = opus_encoder_ctl(e, OPUS_SET_FORCE_CHANNELS(channels))) != OPUS_OK ||
	    (err = opus_encoder_ctl(e, OPUS_SET_VBR(1))) != OPUS_OK ||
	    (err = opus_encoder_ctl(e, OPUS_SET_VBR_CONSTRAINT(1))) != OPUS_OK ||
	    (err = opus_encoder_ctl(e, OPUS_SET_DTX(0))) != OPUS_OK)
		return err;
	return opus_encoder_ctl(e, OPUS_SET_INBAND_FEC(0));
}

static int encoder_lookahead(OpusEncoder *e, opus_int32 *samples)
{
	return opus_encoder_ctl(e, OPUS_GET_LOOKAHEAD(samples));
}

static int encoder_reset(OpusEncoder *e) { return opus_encoder_ctl(e, OPUS_RESET_STATE); }
static int decoder_reset(OpusDecoder *d) { return opus_decoder_ctl(d, OPUS_RESET_STATE); }

#endif
