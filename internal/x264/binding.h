// Thin wrappers around libx264. Planes are separate parameters, so C never keeps memory that
// contains a Go pointer; pictures and parameters stay in C.
#ifndef HOLOCAST_X264_BINDING_H
#define HOLOCAST_X264_BINDING_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <x264.h>

enum { QP_LIMIT = 51 };

struct encoder {
	x264_t *x;
	const uint8_t *luma; // newest decoded frame
	int luma_stride;
};

static int encoder_open(struct encoder *e, const char *preset, int width, int height,
			uint32_t fps_num, uint32_t fps_den, int qp,
			int primaries, int transfer, int matrix, int full_range, int annexb, int refine,
			int offsets)
{
	x264_param_t p;

	if (x264_param_default_preset(&p, preset, "psnr,zerolatency") < 0)
		return -1;
	p.i_width = width;
	p.i_height = height;
	p.i_csp = X264_CSP_I420;
	p.i_fps_num = fps_num;
	p.i_fps_den = fps_den;
	p.i_timebase_num = fps_den;
	p.i_timebase_den = fps_num;
	p.b_vfr_input = 0;
	p.vui.i_colorprim = primaries;
	p.vui.i_transfer = transfer;
	p.vui.i_colmatrix = matrix;
	p.vui.b_fullrange = full_range;
	// One thread suffices, as the caller runs many encoders concurrently.
	p.i_threads = 1;
	p.i_lookahead_threads = 1;
	p.b_sliced_threads = 0;
	// The caller decides which frames are IDR.
	p.i_keyint_max = X264_KEYINT_MAX_INFINITE;
	p.i_scenecut_threshold = 0;
	p.b_open_gop = 0;
	p.i_bframe = 0;
	p.b_annexb = annexb;
	p.b_repeat_headers = annexb;
	p.rc.i_rc_method = X264_RC_CQP;
	p.rc.i_qp_constant = qp;
	// libx264 clips a frame's quantiser to the range for I, P and B frames. There are no B frames,
	// so their factor can widen the range.
	p.rc.f_pb_factor = exp2f((QP_LIMIT - qp) / 6.0f);
	if (offsets) { // libx264 ignores them without adaptive quantization
		p.rc.i_rc_method = X264_RC_CRF;
		p.rc.f_rf_constant = qp;
		p.rc.i_aq_mode = X264_AQ_VARIANCE;
		p.rc.f_aq_strength = 1e-4f;
		p.rc.i_qp_max = QP_LIMIT;
	}
	if (refine) {
		p.analyse.i_subpel_refine = 2;
		p.analyse.intra = p.analyse.inter = X264_ANALYSE_I4x4;
		p.b_deblocking_filter = 1;
	}
	p.i_log_level = X264_LOG_NONE;
	if (x264_param_apply_profile(&p, "high") < 0)
		return -1;
	e->x = x264_encoder_open(&p);
	return e->x ? 0 : -1;
}

static void encoder_close(struct encoder *e)
{
	if (e->x)
		x264_encoder_close(e->x);
	e->x = NULL;
}

static int encoder_headers(struct encoder *e, x264_nal_t **nals, int *count)
{
	return x264_encoder_headers(e->x, nals, count);
}

// Returns the payload's size, and the payload in data; negative on error.
static int encoder_encode(struct encoder *e, const uint8_t *y, int y_stride, const uint8_t *u, const uint8_t *v,
			  int c_stride, float *offsets, int64_t pts, int idr, int qp, uint8_t **data)
{
	x264_picture_t in, out;
	x264_nal_t *nals = NULL;
	int count = 0, size;

	x264_picture_init(&in);
	in.img.i_csp = X264_CSP_I420;
	in.img.i_plane = 3;
	in.img.plane[0] = (uint8_t *)y;
	in.img.plane[1] = (uint8_t *)u;
	in.img.plane[2] = (uint8_t *)v;
	in.img.i_stride[0] = y_stride;
	in.img.i_stride[1] = in.img.i_stride[2] = c_stride;
	in.i_pts = pts;
	in.i_type = idr ? X264_TYPE_IDR : X264_TYPE_P;
	in.i_qpplus1 = qp ? qp + 1 : 0;
	in.prop.quant_offsets = offsets;
	size = x264_encoder_encode(e->x, &nals, &count, &in, &out);
	if (size <= 0)
		return -1;
	*data = nals[0].p_payload;
	e->luma = out.img.plane[0];
	e->luma_stride = out.img.i_stride[0];
	return size;
}

static double luma_error(const struct encoder *e, const uint8_t *src, int stride, int width,
			 const float *weights, int rows, int first)
{
	double sum = 0;

	for (int r = 0; r < rows; r++) {
		const uint8_t *a = e->luma + (size_t)(first + r) * e->luma_stride;
		const uint8_t *b = src + (size_t)(first + r) * stride;
		uint32_t row = 0;

		for (int i = 0; i < width; i++) {
			int d = a[i] - b[i];
			row += (uint32_t)(d * d);
		}
		sum += (double)row * weights[r];
	}
	return sum;
}

static void luma_copy(const struct encoder *e, uint8_t *dst, int width, int height)
{
	for (int r = 0; r < height; r++)
		memcpy(dst + (size_t)r * width, e->luma + (size_t)r * e->luma_stride, width);
}

#endif
