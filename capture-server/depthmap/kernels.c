#include "kernels.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__)
#include <immintrin.h>
#define X86_GLIBC
#define VECTORISED __attribute__((target_clones("avx2", "default")))
#else
#define VECTORISED
#endif

static inline float minf(float a, float b) { return a < b ? a : b; }
static inline float maxf(float a, float b) { return a > b ? a : b; }
static inline uint16_t min16(uint16_t a, uint16_t b) { return a < b ? a : b; }
static inline uint16_t max16(uint16_t a, uint16_t b) { return a > b ? a : b; }
static inline int32_t min32(int32_t a, int32_t b) { return a < b ? a : b; }
static inline int32_t max32(int32_t a, int32_t b) { return a > b ? a : b; }
static inline uint8_t clamp8(int32_t x) { return x < 0 ? 0 : x > 255 ? 255 : x; }

// see projects the point at depth d on the ray (rx, ry, 1) to pixel (u, v), at distance z along the
// lens's axis. It returns 0 if the point is behind the lens or outside its valid radius.
static inline int see(float rx, float ry, float d, const struct lens *l, float *u, float *v,
		      float *z)
{
	float px = (l->r[0] * rx + l->r[1] * ry + l->r[2]) * d + l->tx;
	float py = (l->r[3] * rx + l->r[4] * ry + l->r[5]) * d + l->ty;
	float pz = (l->r[6] * rx + l->r[7] * ry + l->r[8]) * d + l->tz;
	float inv = 1.0f / pz;
	float x = px * inv, y = py * inv;
	float xx = x * x, yy = y * y, xy2 = 2 * x * y;
	float r2 = xx + yy;
	float a = 1 + r2 * (l->k[0] + r2 * (l->k[1] + r2 * l->k[2]));
	float b = 1 + r2 * (l->k[3] + r2 * (l->k[4] + r2 * l->k[5]));
	float f = a / b;
	*z = pz;
	*u = l->fx * (x * f + (r2 + 2 * xx) * l->p2 + xy2 * l->p1) + l->cx;
	*v = l->fy * (y * f + (r2 + 2 * yy) * l->p1 + xy2 * l->p2) + l->cy;
	return (pz > 0) & (r2 <= l->max_r2);
}

VECTORISED
void project(const uint16_t *restrict depth, int32_t n, const float *restrict x,
	     const float *restrict y, const struct lens *lens, uint16_t *restrict u,
	     uint16_t *restrict v)
{
	const struct lens l = *lens;
	// Half a pixel beyond the outer pixel centres belongs to the image. Positions are clamped so
	// that the sampler's right and lower neighbours exist.
	const float right = l.width - 0.5f, bottom = l.height - 0.5f;
	const float max_u = (l.width - 1) * SUBPIXEL - 1, max_v = (l.height - 1) * SUBPIXEL - 1;

	for (int32_t i = 0; i < n; i++) {
		float d = depth[i];
		float fu, fv, fz;
		int ok = see(x[i], y[i], d, &l, &fu, &fv, &fz);
		// Comparisons are false for NaN.
		ok &= (d > 0) & (fu >= -0.5f) & (fu < right) & (fv >= -0.5f) & (fv < bottom);
		fu = fu * SUBPIXEL + 0.5f;
		fv = fv * SUBPIXEL + 0.5f;
		fu = fu > 0 ? fu : 0;
		fv = fv > 0 ? fv : 0;
		fu = fu < max_u ? fu : max_u;
		fv = fv < max_v ? fv : max_v;
		int32_t iu = (int32_t)fu, iv = (int32_t)fv;
		u[i] = ok ? iu : OUTSIDE;
		v[i] = iv;
	}
}

VECTORISED
void project_vertices(const uint16_t *restrict depth, int32_t n, const float *restrict x,
		      const float *restrict y, const struct lens *lens, float *restrict u,
		      float *restrict v, float *restrict zc)
{
	const struct lens l = *lens;

	for (int32_t i = 0; i < n; i++) {
		float d = depth[i];
		float fu, fv, fz;
		int ok = see(x[i], y[i], d, &l, &fu, &fv, &fz) & (d > 0);
		u[i] = fu;
		v[i] = fv;
		zc[i] = ok ? fz : 0;
	}
}

void uncover(uint16_t *zbuf, int32_t n)
{
	memset(zbuf, 0xff, (size_t)n * sizeof(*zbuf));
}

void splat(const uint16_t *restrict depth, const uint16_t *restrict u, const uint16_t *restrict v,
	   int32_t n, const struct cover *cover, uint16_t *restrict zbuf)
{
	const int32_t cells = cover->cells, width = cover->width;

	for (int32_t i = 0; i < n; i++) {
		if (u[i] == OUTSIDE)
			continue;
		uint16_t *z = zbuf + (v[i] * cells >> 16) * width + (u[i] * cells >> 16);
		*z = depth[i] < *z ? depth[i] : *z;
	}
}

// hidden reports whether a point lies behind the depth that splat recorded, beyond the tolerance.
static inline int hidden(int32_t depth, int32_t u, int32_t v, const struct cover *c,
			 const uint16_t *zbuf)
{
	int32_t near = zbuf[(v * c->cells >> 16) * c->width + (u * c->cells >> 16)];
	return depth > near + c->slack + (near >> SLACK_SHIFT);
}

// BT.601 to RGB with 13 fractional bits: offset and factor of luma, then the factors of cr in red,
// of cb and cr in green, and of cb in blue.
struct matrix {
	int16_t offset, y, r_cr, g_cb, g_cr, b_cb;
};

static const struct matrix FULL = { 0, 8192, 11485, -2819, -5850, 14516 };
static const struct matrix LIMITED = { 16, 9539, 13075, -3209, -6660, 16525 };

static inline void to_rgb(int32_t y, int32_t cb, int32_t cr, const struct matrix *m, uint8_t *rgb)
{
	y = (y - m->offset) * m->y + 4096;
	cb -= 128;
	cr -= 128;
	rgb[0] = clamp8((y + m->r_cr * cr) >> 13);
	rgb[1] = clamp8((y + m->g_cb * cb + m->g_cr * cr) >> 13);
	rgb[2] = clamp8((y + m->b_cb * cb) >> 13);
}

static void sample_planes_from(int32_t first, uint16_t *restrict depth, const uint16_t *restrict u,
			       const uint16_t *restrict v, int32_t n, const struct cover *cover,
			       const uint16_t *restrict zbuf, const uint8_t *restrict luma,
			       const uint8_t *restrict cb, const uint8_t *restrict cr,
			       const struct layout *layout, uint8_t *restrict rgb)
{
	const struct layout p = *layout;
	const struct matrix *m = p.limited ? &LIMITED : &FULL;

	for (int32_t i = first; i < n; i++) {
		if (depth[i] == 0)
			continue;
		if (u[i] == OUTSIDE || hidden(depth[i], u[i], v[i], cover, zbuf)) {
			depth[i] = 0;
			continue;
		}
		int32_t x = u[i] >> 4, y = v[i] >> 4, fx = u[i] & 15, fy = v[i] & 15;
		const uint8_t *q = luma + (int64_t)y * p.y_stride + x * p.y_step;
		int32_t top = q[0] * (16 - fx) + q[p.y_step] * fx;
		q += p.y_stride;
		int32_t low = q[0] * (16 - fx) + q[p.y_step] * fx;
		int32_t bright = (top * (16 - fy) + low * fy + 128) >> 8;
		int64_t c = (int64_t)(((v[i] + 8) >> 4) >> p.shift_y) * p.c_stride +
			    (((u[i] + 8) >> 4) >> p.shift_x) * p.c_step;
		to_rgb(bright, cb[c], cr[c], m, rgb + 3 * i);
	}
}

#ifdef X86_GLIBC
// sample_planes for JPEG planes, eight points at a time. One gather fetches two neighbouring luma
// samples; it reads up to three bytes beyond those it needs.
__attribute__((target("avx2"))) static int32_t
sample_planes_avx2(uint16_t *restrict depth, const uint16_t *restrict u,
		   const uint16_t *restrict v, int32_t n, const struct cover *cover,
		   const uint16_t *restrict zbuf, const uint8_t *restrict luma,
		   const uint8_t *restrict cb, const uint8_t *restrict cr,
		   const struct layout *layout, uint8_t *restrict rgb)
{
	const struct matrix *m = &FULL;
	const __m256i zero = _mm256_setzero_si256(), low_byte = _mm256_set1_epi32(0xff);
	const __m256i fraction = _mm256_set1_epi32(15), eight = _mm256_set1_epi32(8);
	const __m256i cells = _mm256_set1_epi32(cover->cells);
	const __m256i zw = _mm256_set1_epi32(cover->width);
	const __m256i slack = _mm256_set1_epi32(cover->slack);
	const __m256i y_stride = _mm256_set1_epi32(layout->y_stride);
	const __m256i c_stride = _mm256_set1_epi32(layout->c_stride);
	const __m128i shift_x = _mm_cvtsi32_si128(4 + layout->shift_x);
	const __m128i shift_y = _mm_cvtsi32_si128(4 + layout->shift_y);
	const __m256i to_r = _mm256_set1_epi32((int32_t)((uint32_t)m->r_cr << 16));
	const __m256i to_g = _mm256_set1_epi32((int32_t)((uint32_t)m->g_cr << 16 | (uint16_t)m->g_cb));
	const __m256i to_b = _mm256_set1_epi32((uint16_t)m->b_cb);
	const __m256i center = _mm256_set1_epi32(128 << 16 | 128);
	const __m256i max = _mm256_set1_epi32(255), half = _mm256_set1_epi32(4096);
	const __m256i squeeze = _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1,
						 0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
	int32_t i = 0;

	for (; i + 16 <= n; i += 8) { // stores extend 4 bytes into the next eight
		__m128i d16 = _mm_loadu_si128((const __m128i *)(depth + i));
		__m128i u16 = _mm_loadu_si128((const __m128i *)(u + i));
		__m128i gone = _mm_or_si128(_mm_cmpeq_epi16(d16, _mm_setzero_si128()),
					    _mm_cmpeq_epi16(u16, _mm_set1_epi16(-1)));
		if (_mm_movemask_epi8(gone) == 0xffff) {
			_mm_storeu_si128((__m128i *)(depth + i), _mm_setzero_si128());
			continue;
		}
		__m256i d = _mm256_cvtepu16_epi32(d16);
		__m256i pu = _mm256_cvtepu16_epi32(_mm_andnot_si128(gone, u16));
		__m256i pv = _mm256_cvtepu16_epi32(
			_mm_andnot_si128(gone, _mm_loadu_si128((const __m128i *)(v + i))));

		__m256i cell = _mm256_add_epi32(
			_mm256_mullo_epi32(_mm256_srli_epi32(_mm256_mullo_epi32(pv, cells), 16), zw),
			_mm256_srli_epi32(_mm256_mullo_epi32(pu, cells), 16));
		__m256i near = _mm256_and_si256(_mm256_i32gather_epi32((const int *)zbuf, cell, 2),
						_mm256_set1_epi32(0xffff));
		__m256i limit = _mm256_add_epi32(_mm256_add_epi32(near, slack),
						 _mm256_srli_epi32(near, SLACK_SHIFT));
		__m256i behind = _mm256_cmpgt_epi32(d, limit);
		gone = _mm_or_si128(gone, _mm_packs_epi32(_mm256_castsi256_si128(behind),
							  _mm256_extracti128_si256(behind, 1)));
		_mm_storeu_si128((__m128i *)(depth + i), _mm_andnot_si128(gone, d16));

		__m256i fx = _mm256_and_si256(pu, fraction), fy = _mm256_and_si256(pv, fraction);
		__m256i at = _mm256_add_epi32(
			_mm256_mullo_epi32(_mm256_srli_epi32(pv, 4), y_stride), _mm256_srli_epi32(pu, 4));
		__m256i top = _mm256_i32gather_epi32((const int *)luma, at, 1);
		__m256i low = _mm256_i32gather_epi32((const int *)luma, _mm256_add_epi32(at, y_stride), 1);
		// Weights: byte 0 is 16-fx, byte 1 is fx, the others are 0.
		__m256i wx = _mm256_or_si256(_mm256_sub_epi32(_mm256_set1_epi32(16), fx),
					     _mm256_slli_epi32(fx, 8));
		top = _mm256_maddubs_epi16(top, wx);
		low = _mm256_maddubs_epi16(low, wx);
		__m256i wy = _mm256_or_si256(_mm256_sub_epi32(_mm256_set1_epi32(16), fy),
					     _mm256_slli_epi32(fy, 16));
		__m256i y = _mm256_madd_epi16(_mm256_or_si256(top, _mm256_slli_epi32(low, 16)), wy);
		y = _mm256_srli_epi32(_mm256_add_epi32(y, _mm256_set1_epi32(128)), 8);

		__m256i c = _mm256_add_epi32(
			_mm256_mullo_epi32(_mm256_srl_epi32(_mm256_add_epi32(pv, eight), shift_y), c_stride),
			_mm256_srl_epi32(_mm256_add_epi32(pu, eight), shift_x));
		__m256i b = _mm256_and_si256(_mm256_i32gather_epi32((const int *)cb, c, 1), low_byte);
		__m256i r = _mm256_and_si256(_mm256_i32gather_epi32((const int *)cr, c, 1), low_byte);
		__m256i chroma = _mm256_sub_epi16(_mm256_or_si256(b, _mm256_slli_epi32(r, 16)), center);

		y = _mm256_add_epi32(_mm256_slli_epi32(y, 13), half);
		__m256i red = _mm256_srai_epi32(_mm256_add_epi32(y, _mm256_madd_epi16(chroma, to_r)), 13);
		__m256i green = _mm256_srai_epi32(_mm256_add_epi32(y, _mm256_madd_epi16(chroma, to_g)), 13);
		__m256i blue = _mm256_srai_epi32(_mm256_add_epi32(y, _mm256_madd_epi16(chroma, to_b)), 13);
		red = _mm256_min_epi32(_mm256_max_epi32(red, zero), max);
		green = _mm256_min_epi32(_mm256_max_epi32(green, zero), max);
		blue = _mm256_min_epi32(_mm256_max_epi32(blue, zero), max);
		__m256i out = _mm256_or_si256(red, _mm256_or_si256(_mm256_slli_epi32(green, 8),
								   _mm256_slli_epi32(blue, 16)));
		out = _mm256_shuffle_epi8(out, squeeze);
		_mm_storeu_si128((__m128i *)(rgb + 3 * i), _mm256_castsi256_si128(out));
		_mm_storeu_si128((__m128i *)(rgb + 3 * i + 12), _mm256_extracti128_si256(out, 1));
	}
	return i;
}
#endif

void sample_planes(uint16_t *depth, const uint16_t *u, const uint16_t *v, int32_t n,
		   const struct cover *cover, const uint16_t *zbuf, const uint8_t *luma,
		   const uint8_t *cb, const uint8_t *cr, const struct layout *layout, uint8_t *rgb)
{
	int32_t done = 0;
#ifdef X86_GLIBC
	if (layout->padded && __builtin_cpu_supports("avx2"))
		done = sample_planes_avx2(depth, u, v, n, cover, zbuf, luma, cb, cr, layout, rgb);
#endif
	sample_planes_from(done, depth, u, v, n, cover, zbuf, luma, cb, cr, layout, rgb);
}

void sample_bgra(uint16_t *restrict depth, const uint16_t *restrict u, const uint16_t *restrict v,
		 int32_t n, const struct cover *cover, const uint16_t *restrict zbuf,
		 const uint8_t *restrict bgra, int32_t width, uint8_t *restrict rgb)
{
	for (int32_t i = 0; i < n; i++) {
		if (depth[i] == 0)
			continue;
		if (u[i] == OUTSIDE || hidden(depth[i], u[i], v[i], cover, zbuf)) {
			depth[i] = 0;
			continue;
		}
		int32_t x = u[i] >> 4, y = v[i] >> 4, fx = u[i] & 15, fy = v[i] & 15;
		const uint8_t *q = bgra + 4 * ((int64_t)y * width + x);
		const uint8_t *s = q + 4 * (int64_t)width;
		for (int c = 0; c < 3; c++) {
			int32_t top = q[c] * (16 - fx) + q[4 + c] * fx;
			int32_t low = s[c] * (16 - fx) + s[4 + c] * fx;
			rgb[3 * i + 2 - c] = (top * (16 - fy) + low * fy + 128) >> 8;
		}
	}
}

void planes_to_rgb(const uint8_t *luma, const uint8_t *cb, const uint8_t *cr,
		   const struct layout *layout, uint8_t *restrict rgb)
{
	const struct layout p = *layout;
	const struct matrix *m = p.limited ? &LIMITED : &FULL;

	for (int32_t y = 0; y < p.height; y++) {
		const uint8_t *row = luma + (int64_t)y * p.y_stride;
		int64_t c = (int64_t)(y >> p.shift_y) * p.c_stride;
		for (int32_t x = 0; x < p.width; x++, rgb += 3) {
			int64_t k = c + (x >> p.shift_x) * p.c_step;
			to_rgb(row[x * p.y_step], cb[k], cr[k], m, rgb);
		}
	}
}

VECTORISED
void bgra_to_rgb(const uint8_t *restrict bgra, int32_t n, uint8_t *restrict rgb)
{
	for (int32_t i = 0; i < n; i++) {
		rgb[3 * i] = bgra[4 * i + 2];
		rgb[3 * i + 1] = bgra[4 * i + 1];
		rgb[3 * i + 2] = bgra[4 * i];
	}
}

void recolor(const uint16_t *restrict depth, uint8_t *restrict rgb, int32_t n,
	     const uint8_t *restrict red, const uint8_t *restrict green,
	     const uint8_t *restrict blue)
{
	for (int32_t first = 0; first < n; first += 8) {
		uint64_t eight[2] = { 1 };
		if (n - first >= 8)
			memcpy(eight, depth + first, sizeof(eight));
		if ((eight[0] | eight[1]) == 0)
			continue; // no point among the next eight pixels
		for (uint8_t *p = rgb + 3 * first; p < rgb + 3 * min32(first + 8, n); p += 3) {
			p[0] = red[p[0]];
			p[1] = green[p[1]];
			p[2] = blue[p[2]];
		}
	}
}

// A surface's neighbouring pixels differ in depth by at most depth/2^STEP_SHIFT.
enum { STEP_SHIFT = 5 };

VECTORISED
void edges(const uint16_t *restrict depth, int32_t width, int32_t height, int32_t stride,
	   uint8_t *restrict edge)
{
	memset(edge, 1, width);
	for (int32_t y = 1; y < height - 1; y++) {
		const uint16_t *row = depth + (int64_t)y * stride, *up = row - stride, *down = row + stride;
		uint8_t *out = edge + (int64_t)y * stride;
		out[0] = out[width - 1] = 1;
		for (int32_t x = 1; x < width - 1; x++) {
			uint16_t z = row[x], step = z >> STEP_SHIFT;
			uint16_t hi = max16(max16(row[x - 1], row[x + 1]), max16(up[x], down[x]));
			uint16_t lo = min16(min16(row[x - 1], row[x + 1]), min16(up[x], down[x]));
			hi = max16(hi, max16(max16(up[x - 1], up[x + 1]), max16(down[x - 1], down[x + 1])));
			lo = min16(lo, min16(min16(up[x - 1], up[x + 1]), min16(down[x - 1], down[x + 1])));
			uint16_t over = max16(max16(hi, z) - z, z - min16(lo, z));
			out[x] = (over > step) & (z != 0) ? 1 : 0;
		}
	}
	memset(edge + (int64_t)(height - 1) * stride, 1, width);
}

// inner returns the offset from depth and edge to a pixel of the same surface that is not on its
// edge, r rows or columns away, or 0.
static inline int32_t inner(const uint16_t *depth, const uint8_t *edge, int32_t stride, int32_t r)
{
	const int32_t to[8] = {
		1, -1, stride, -stride, stride + 1, stride - 1, 1 - stride, -1 - stride,
	};
	int32_t z = *depth, step = r * (z >> STEP_SHIFT), found = 0;
	for (int i = 0; i < 8; i++) {
		int32_t k = r * to[i], d = depth[k] - z;
		found |= ((edge[k] == 0) & (d <= step) & (d >= -step)) << i;
	}
	return found ? r * to[__builtin_ctz(found)] : 0;
}

void inset(const uint16_t *restrict depth, const uint8_t *restrict edge, int32_t width,
	   int32_t height, int32_t stride, int32_t radius, uint8_t *restrict rgb)
{
	const int32_t rim = radius + 1;

	for (int32_t y = rim; y < height - rim; y++) {
		const int64_t row = (int64_t)y * stride;
		for (int32_t first = 0; first + 8 <= width; first += 8) {
			uint64_t marks; // a bit in each marked pixel's byte
			memcpy(&marks, edge + row + first, sizeof(marks));
			for (; marks != 0; marks &= marks - 1) {
				int32_t x = first + (__builtin_ctzll(marks) >> 3);
				if (x < rim || x >= width - rim)
					continue;
				const int64_t i = row + x;
				int32_t from = inner(depth + i, edge + i, stride, radius);
				if (from == 0)
					from = inner(depth + i, edge + i, stride, rim);
				memmove(rgb + 3 * i, rgb + 3 * (i + from), 3);
			}
		}
	}
}

// MAX_SPAN bounds the colour pixels between neighbouring depth pixels. Real lenses need at most
// about eight; more means the lens model is outside its valid range.
enum { MAX_SPAN = 64 };

struct vertex {
	float u, v, z;
	uint32_t clipped;
};

static inline void triangle(struct vertex a, struct vertex b, struct vertex c, float max_ratio,
			    uint32_t *zbuf, int32_t width, int32_t height)
{
	uint32_t clipped = a.clipped | b.clipped | c.clipped;
	float lo = minf(a.z, minf(b.z, c.z)), hi = maxf(a.z, maxf(b.z, c.z));
	if (hi - lo > max_ratio * lo)
		return;
	float min_u = minf(a.u, minf(b.u, c.u)), max_u = maxf(a.u, maxf(b.u, c.u));
	float min_v = minf(a.v, minf(b.v, c.v)), max_v = maxf(a.v, maxf(b.v, c.v));
	if (!(max_u >= 0 && max_v >= 0 && min_u <= width - 1 && min_v <= height - 1))
		return;
	// The pixels whose centres lie inside: the lower bound is rounded up, the upper bound down.
	int32_t x0 = (int32_t)(maxf(min_u, 0) + 0.9999f), x1 = (int32_t)minf(max_u, width - 1);
	int32_t y0 = (int32_t)(maxf(min_v, 0) + 0.9999f), y1 = (int32_t)minf(max_v, height - 1);
	if (x0 > x1 || y0 > y1 || x1 - x0 > MAX_SPAN || y1 - y0 > MAX_SPAN)
		return;
	// A triangle seen from its front is clockwise on the screen. The colour camera does not see
	// back faces, which the sign of the area reveals.
	float area = (b.u - a.u) * (c.v - a.v) - (b.v - a.v) * (c.u - a.u);
	if (!(area > 1e-6f))
		return;
	float inv = 1 / area;
	for (int32_t y = y0; y <= y1; y++) {
		for (int32_t x = x0; x <= x1; x++) {
			float wb = ((x - a.u) * (c.v - a.v) - (y - a.v) * (c.u - a.u)) * inv;
			float wc = ((b.u - a.u) * (y - a.v) - (b.v - a.v) * (x - a.u)) * inv;
			float wa = 1 - wb - wc;
			const float rim = -1e-4f; // neighbours share the pixels on their edge
			if (wa < rim || wb < rim || wc < rim)
				continue;
			uint32_t z = (uint32_t)(wa * a.z + wb * b.z + wc * c.z + 0.5f);
			z = (z > 0xffff ? 0xffff : z) << 1 | clipped;
			uint32_t *out = zbuf + (int64_t)y * width + x;
			*out = z < *out ? z : *out;
		}
	}
}

// quad renders the triangles 0 1 2 and 0 2 3 of four corners on one surface, visiting each pixel
// once.
static inline void quad(const struct vertex *p, uint32_t *zbuf, int32_t width, int32_t height)
{
	float min_u = minf(minf(p[0].u, p[1].u), minf(p[2].u, p[3].u));
	float max_u = maxf(maxf(p[0].u, p[1].u), maxf(p[2].u, p[3].u));
	float min_v = minf(minf(p[0].v, p[1].v), minf(p[2].v, p[3].v));
	float max_v = maxf(maxf(p[0].v, p[1].v), maxf(p[2].v, p[3].v));
	if (!(max_u >= 0 && max_v >= 0 && min_u <= width - 1 && min_v <= height - 1))
		return;
	int32_t x0 = (int32_t)(maxf(min_u, 0) + 0.9999f), x1 = (int32_t)minf(max_u, width - 1);
	int32_t y0 = (int32_t)(maxf(min_v, 0) + 0.9999f), y1 = (int32_t)minf(max_v, height - 1);
	if (x0 > x1 || y0 > y1 || x1 - x0 > MAX_SPAN || y1 - y0 > MAX_SPAN)
		return;
	float u1 = p[1].u - p[0].u, v1 = p[1].v - p[0].v;
	float u2 = p[2].u - p[0].u, v2 = p[2].v - p[0].v;
	float u3 = p[3].u - p[0].u, v3 = p[3].v - p[0].v;
	float area1 = u1 * v2 - v1 * u2, area3 = u2 * v3 - v2 * u3;
	float inv1 = area1 > 1e-6f ? 1 / area1 : 0, inv3 = area3 > 1e-6f ? 1 / area3 : 0;
	float z0 = p[0].z + 0.5f, z1 = p[1].z - p[0].z, z2 = p[2].z - p[0].z, z3 = p[3].z - p[0].z;
	uint32_t clipped1 = p[0].clipped | p[1].clipped | p[2].clipped;
	uint32_t clipped3 = p[0].clipped | p[2].clipped | p[3].clipped;
	const float rim = -1e-4f;

	for (int32_t y = y0; y <= y1; y++) {
		for (int32_t x = x0; x <= x1; x++) {
			float u = x - p[0].u, v = y - p[0].v;
			float side = u2 * v - v2 * u; // side of the diagonal; positive towards corner 3
			int first = side <= 0;
			float inv = first ? inv1 : inv3;
			float other = (first ? -side : side) * inv; // weight of corner 1 or 3
			float w2 = (first ? u1 * v - v1 * u : u * v3 - v * u3) * inv;
			if (!(inv > 0 && w2 >= rim && 1 - other - w2 >= rim))
				continue;
			uint32_t z = (uint32_t)(z0 + other * (first ? z1 : z3) + w2 * z2);
			z = (z > 0xffff ? 0xffff : z) << 1 | (first ? clipped1 : clipped3);
			uint32_t *out = zbuf + (int64_t)y * width + x;
			*out = z < *out ? z : *out;
		}
	}
}

void warp(const uint16_t *restrict kept, const float *restrict u, const float *restrict v,
	  const float *restrict zc, int32_t dw, int32_t dh, float max_ratio,
	  uint32_t *restrict zbuf, int32_t width, int32_t height)
{
	memset(zbuf, 0xff, (size_t)width * height * sizeof(*zbuf));
	for (int32_t y = 0; y + 1 < dh; y++) {
		for (int32_t x = 0; x + 1 < dw; x++) {
			int32_t i = y * dw + x, corner[4] = { i, i + 1, i + dw + 1, i + dw };
			struct vertex p[4];
			int n = 0;
			for (int c = 0; c < 4; c++) {
				int32_t k = corner[c];
				if (zc[k] > 0)
					p[n++] = (struct vertex){ u[k], v[k], zc[k], kept[k] == 0 };
			}
			if (n == 4) {
				float lo = minf(minf(p[0].z, p[1].z), minf(p[2].z, p[3].z));
				float hi = maxf(maxf(p[0].z, p[1].z), maxf(p[2].z, p[3].z));
				if (hi - lo <= max_ratio * lo) {
					quad(p, zbuf, width, height);
					continue;
				}
			}
			if (n >= 3)
				triangle(p[0], p[1], p[2], max_ratio, zbuf, width, height);
			if (n == 4)
				triangle(p[0], p[2], p[3], max_ratio, zbuf, width, height);
		}
	}
}

VECTORISED
void resolve(const uint32_t *restrict zbuf, int32_t n, uint16_t *restrict depth)
{
	for (int32_t i = 0; i < n; i++)
		depth[i] = zbuf[i] & 1 ? 0 : zbuf[i] >> 1; // untouched cells are odd
}

VECTORISED
void clip_range(uint16_t *restrict depth, int32_t n, uint16_t min, uint16_t max)
{
	for (int32_t i = 0; i < n; i++)
		depth[i] = (depth[i] >= min) & (depth[i] <= max) ? depth[i] : 0;
}

VECTORISED
void clip_box(uint16_t *restrict depth, int32_t n, const float *restrict x, const float *restrict y,
	      const struct box *box)
{
	const struct box b = *box;

	for (int32_t i = 0; i < n; i++) {
		float z = depth[i], dx = x[i] * z, dy = y[i] * z;
		float wx = b.r[0] * dx + b.r[1] * dy + b.r[2] * z + b.t[0];
		float wy = b.r[3] * dx + b.r[4] * dy + b.r[5] * z + b.t[1];
		float wz = b.r[6] * dx + b.r[7] * dy + b.r[8] * z + b.t[2];
		int in = (wx >= b.min[0]) & (wx <= b.max[0]) & (wy >= b.min[1]) &
			 (wy <= b.max[1]) & (wz >= b.min[2]) & (wz <= b.max[2]);
		depth[i] = in ? depth[i] : 0;
	}
}

VECTORISED
void erode(uint16_t *restrict depth, int32_t width, int32_t height, int32_t radius, int32_t step,
	   uint16_t *restrict tmp, uint16_t *restrict low)
{
	// Minimum over the window, rows first; pixels outside the image are ignored.
	for (int32_t y = 0; y < height; y++) {
		const uint16_t *row = depth + (int64_t)y * width;
		uint16_t *out = tmp + (int64_t)y * width;
		memcpy(out, row, width * sizeof(*row));
		for (int32_t r = 1; r <= radius; r++) {
			for (int32_t x = r; x < width; x++)
				out[x] = row[x - r] < out[x] ? row[x - r] : out[x];
			for (int32_t x = 0; x < width - r; x++)
				out[x] = row[x + r] < out[x] ? row[x + r] : out[x];
		}
	}
	for (int32_t y = 0; y < height; y++) {
		uint16_t *out = low + (int64_t)y * width;
		memcpy(out, tmp + (int64_t)y * width, width * sizeof(*out));
		for (int32_t r = max32(0, y - radius); r <= min32(height - 1, y + radius); r++) {
			const uint16_t *row = tmp + (int64_t)r * width;
			for (int32_t x = 0; x < width; x++)
				out[x] = row[x] < out[x] ? row[x] : out[x];
		}
	}
	for (int32_t i = 0; i < width * height; i++)
		depth[i] = (low[i] == 0) | (depth[i] - low[i] > step) ? 0 : depth[i];
}

// steep returns a nonzero value if the differences of depth z to a and b, which may be holes but not
// both, exceed limit.
static inline uint16_t steep(uint16_t z, uint16_t a, uint16_t b, uint16_t limit)
{
	uint16_t to_a = max16(a, z) - min16(a, z), to_b = max16(b, z) - min16(b, z);
	uint16_t excess = max16(min16(to_a, to_b), limit) - limit;
	return min16(excess, a | b);
}

VECTORISED
void grazing(const uint16_t *restrict in, uint16_t *restrict out, int32_t width, int32_t height,
	     const uint16_t *restrict slope)
{
	memcpy(out, in, width * sizeof(*in));
	for (int32_t y = 1; y < height - 1; y++) {
		const uint16_t *row = in + (int64_t)y * width, *up = row - width, *down = row + width;
		const uint16_t *k = slope + (int64_t)y * width;
		uint16_t *to = out + (int64_t)y * width;
		to[0] = row[0];
		to[width - 1] = row[width - 1];
		for (int32_t x = 1; x < width - 1; x++) {
			uint16_t z = row[x], limit = (uint32_t)z * k[x] >> 16;
			uint16_t diagonal = limit + (limit >> 2) + (limit >> 3);
			uint16_t flies = steep(z, row[x - 1], row[x + 1], limit) |
					 steep(z, up[x], down[x], limit) |
					 steep(z, up[x - 1], down[x + 1], diagonal) |
					 steep(z, up[x + 1], down[x - 1], diagonal);
			to[x] = flies ? 0 : z;
		}
	}
	memcpy(out + (int64_t)(height - 1) * width, in + (int64_t)(height - 1) * width,
	       width * sizeof(*in));
}

VECTORISED
void isolated(const uint16_t *restrict in, uint16_t *restrict out, int32_t width, int32_t height,
	      int32_t radius, int32_t min_neighbors, int32_t band, uint16_t *restrict padded)
{
	const int32_t stride = width + 2 * radius;
	const uint16_t b = band;

	memset(padded, 0, (size_t)stride * (height + 2 * radius) * sizeof(*padded));
	for (int32_t y = 0; y < height; y++)
		memcpy(padded + (int64_t)(y + radius) * stride + radius, in + (int64_t)y * width,
		       width * sizeof(*in));
	for (int32_t y = 0; y < height; y++) {
		const uint16_t *row = in + (int64_t)y * width;
		uint16_t *count = out + (int64_t)y * width;
		memset(count, 0, width * sizeof(*count));
		for (int32_t dy = 0; dy <= 2 * radius; dy++) {
			for (int32_t dx = 0; dx <= 2 * radius; dx++) {
				const uint16_t *q = padded + (int64_t)(y + dy) * stride + dx;
				for (int32_t x = 0; x < width; x++) {
					uint16_t hi = row[x] > q[x] ? row[x] : q[x];
					uint16_t lo = row[x] > q[x] ? q[x] : row[x];
					count[x] += (uint16_t)(hi - lo) <= b;
				}
			}
		}
		// count includes the point itself, hence > and not >=. A hole (0) is never a neighbour, as
		// band is smaller than any reading.
		for (int32_t x = 0; x < width; x++)
			count[x] = count[x] > min_neighbors ? row[x] : 0;
	}
}
