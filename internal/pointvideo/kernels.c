#define ZSTD_STATIC_LINKING_ONLY // ZSTD_c_literalCompressionMode

#include "kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum {
	BLOCK = 8,
	SEGMENT = 220, // levels of a segment
	LOWEST = 18,   // luma of a segment's first level
	LITERAL = 8,   // first symbol that is a map value
	MAX_WIDTH = 4096,
	COLOR_GATE = 6, // largest deviation of a sample from its mean
};

static inline size_t smaller(size_t a, size_t b) { return a < b ? a : b; }
static inline int clamp(int v, int least, int most) { return v < least ? least : v > most ? most : v; }

// A block's readings compared with the means of its pixels.
struct block {
	int seen, out, gone; // pixels: with reading and mean, of these beyond the gate; no longer read
	float sum, sigmas;   // of the readings within the gate: deviations and standard deviations
};

static inline void compare(struct block *b, const struct wv_state *s, const uint16_t *depth, int at, int n)
{
	float gate = (float)(s->gate * s->gate) / 256;

	for (int i = at; i < at + n; i++) {
		float z = depth[i], m = s->mean[i], e = z - m, sigma = s->sigma0 + s->sigma2 * m * m;
		int known = s->count[i] != 0, here = known & (depth[i] != 0), in = here & (e * e <= gate * sigma * sigma);
		b->gone += known & (depth[i] == 0) & (s->held[i] == 0);
		b->seen += here;
		b->out += here - in;
		b->sum += in ? e : 0;
		b->sigmas += in ? sigma : 0;
	}
}

// find_motion marks blocks whose readings leave the means: many pixels appear, disappear or exceed
// the gate, or the block drifts as a whole.
static void find_motion(struct wv_state *s, const uint16_t *depth)
{
	int w = s->width, h = s->height, columns = (w + BLOCK - 1) / BLOCK;

	for (int y = 0; y < h; y += BLOCK) {
		for (int x = 0; x < w; x += BLOCK) {
			int n = w - x < BLOCK ? w - x : BLOCK, at = y / BLOCK * columns + x / BLOCK;
			struct block b = {0};
			for (int row = y; row < y + BLOCK && row < h; row++) {
				if (n == BLOCK)
					compare(&b, s, depth, row * w + x, BLOCK);
				else
					compare(&b, s, depth, row * w + x, n);
			}
			float shift = b.seen - b.out > 8 ? b.sum / b.sigmas : 0;
			s->moving[at] =
				b.out > 4 + b.seen / 10 || b.gone > BLOCK * BLOCK / 2 || fabsf(shift) > s->trend;
			s->shift[at] = fabsf(shift) < s->drift ? 0 : shift;
		}
	}
}

// spread_motion marks moving blocks and their neighbors in near.
static void spread_motion(struct wv_state *s)
{
	int columns = (s->width + BLOCK - 1) / BLOCK, rows = (s->height + BLOCK - 1) / BLOCK;

	memset(s->near, 0, (size_t)columns * rows);
	for (int i = 0; i < columns * rows; i++) {
		if (!s->moving[i])
			continue;
		int row = i / columns, column = i % columns;
		for (int y = row > 0 ? row - 1 : 0; y <= row + 1 && y < rows; y++)
			for (int x = column > 0 ? column - 1 : 0; x <= column + 1 && x < columns; x++)
				s->near[y * columns + x] = 1;
	}
}

// refine_motion lowers the quantizer of moving macroblocks, whose errors no average hides.
static void refine_motion(struct wv_state *s)
{
	int columns = (s->width + BLOCK - 1) / BLOCK, rows = (s->height + BLOCK - 1) / BLOCK;
	int across = (columns + 1) / 2, down = (rows + 1) / 2;

	for (int i = 0; i < across * down; i++)
		s->offset[i] = 0;
	for (int i = 0; i < columns * rows; i++)
		if (s->moving[i])
			s->offset[i / columns / 2 * across + i % columns / 2] = s->finer;
}

// average adds the readings of n pixels of a block to their means. shift is the block's.
static inline void average(const struct wv_state *s, const uint16_t *restrict depth, float *restrict mean,
			   uint8_t *restrict count, int n, float most, float shift)
{
	float sigma0 = s->sigma0, sigma2 = s->sigma2, gate = (float)(s->gate * s->gate) / 256;

	for (int i = 0; i < n; i++) { // without branches, for vector instructions
		float z = depth[i], before = mean[i], sigma = sigma0 + sigma2 * before * before;
		float shifted = before + shift * sigma, c = count[i];
		float m = fabsf(z - shifted) < fabsf(z - before) ? shifted : before;
		float e = z - m;
		int restart = (c == 0) | (e * e > gate * sigma * sigma);
		m = restart ? z : m;
		c = restart ? 1 : c < most ? c + 1 : most;
		m += (z - m) / c;
		mean[i] = depth[i] ? m : before;
		count[i] = depth[i] ? (uint8_t)c : count[i];
	}
}

// fold returns the luma of a mean and sets its map value. before is the pixel's previous one.
static inline uint8_t fold(const float *levels, float mean, int before, uint8_t *map)
{
	int z = (int)mean, h = before - 1;
	float level = levels[z] + (mean - (float)z) * (levels[z + 1] - levels[z]);

	if (before == 0 || level < (float)(SEGMENT * h - 1) || level > (float)(SEGMENT * (h + 1) + 1))
		h = (int)(level * (1.0f / SEGMENT));
	int q = clamp((int)(level + 0.5f) - SEGMENT * h, 0, SEGMENT), odd = -(h & 1);
	*map = (uint8_t)(h + 1);
	return (uint8_t)(LOWEST + (SEGMENT & odd) + ((q ^ odd) - odd));
}

// smooth processes n pixels of a block from pixel at on. It returns the points.
static inline int smooth(const struct wv_state *s, const uint16_t *depth, int at, int n, uint8_t *restrict luma,
			 int moves, float shift)
{
	uint8_t *restrict map = s->map + at, *restrict count = s->count + at, *restrict held = s->held + at;
	const uint8_t *previous = s->previous + at;
	const float *levels = s->level, *mean = s->mean + at;
	int hold = moves ? 0 : s->hold, points = 0;

	depth += at;
	average(s, depth, s->mean + at, count, n, (float)(moves ? s->most_moving : s->most), shift);
	for (int i = 0; i < n; i++) {
		if (depth[i] != 0) {
			luma[i] = fold(levels, mean[i], previous[i], map + i);
			held[i] = 0;
		} else if (previous[i] != 0 && held[i] < hold) {
			map[i] = previous[i];
			held[i]++;
		} else {
			map[i] = 0;
			count[i] = 0;
		}
		points += map[i] != 0;
	}
	return points;
}

size_t wv_smooth(struct wv_state s, const uint16_t *depth)
{
	int columns = (s.width + BLOCK - 1) / BLOCK;
	size_t points = 0;

	find_motion(&s, depth);
	spread_motion(&s);
	refine_motion(&s);
	for (int y = 0; y < s.height; y++) {
		uint8_t *luma = s.luma + (size_t)y * s.stride;
		for (int x = 0; x < s.width; x += BLOCK) {
			int block = y / BLOCK * columns + x / BLOCK, at = y * s.width + x, n = s.width - x;
			if (n >= BLOCK)
				points += smooth(&s, depth, at, BLOCK, luma + x, s.near[block], s.shift[block]);
			else
				points += smooth(&s, depth, at, n, luma + x, s.near[block], s.shift[block]);
		}
	}
	return points;
}

// follow moves a running mean in 1/16 towards a sample, at once if they differ.
static inline uint8_t follow(uint16_t *mean, int sample)
{
	int e = 16 * sample - *mean;

	if (e > 16 * COLOR_GATE || e < -16 * COLOR_GATE)
		*mean = (uint16_t)(16 * sample);
	else
		*mean = (uint16_t)(*mean + e / 4);
	return (uint8_t)((*mean + 8) >> 4);
}

// offsets are what a pixel's chroma adds to its luma in R, G and B.
struct offsets {
	int r, g, b;
};

static inline struct offsets offsets(int cb, int cr)
{
	cb -= 128, cr -= 128;
	return (struct offsets){
		(103206 * cr + 32768) >> 16, (-12276 * cb - 30679 * cr + 32768) >> 16, (121609 * cb + 32768) >> 16};
}

void wv_color(struct wv_state s, const uint8_t *rgb, const uint16_t *depth)
{
	int width = s.width, height = s.height, half = s.stride / 2;

	for (int v = 0; v < height; v += 2) {
		for (int u = 0; u < width; u += 2) {
			const uint8_t *color[4];
			int at[4], r = 0, g = 0, b = 0, n = 0;
			for (int k = 0; k < 4; k++) {
				int px = u + (k & 1), py = v + (k >> 1);
				if (px >= width || py >= height || depth[py * width + px] == 0)
					continue;
				const uint8_t *c = rgb + 3 * ((size_t)py * width + px);
				at[n] = py * s.stride + px, color[n++] = c;
				r += c[0], g += c[1], b += c[2];
			}
			if (n == 0)
				continue;
			static const int divisor[5] = {0, 65536, 32768, 21845, 16384};
			int c = v / 2 * half + u / 2, all = s.stride * ((height + 1) & ~1), d = divisor[n];
			int64_t blue = (int64_t)d * (-7509 * r - 25259 * g + 32768 * b) >> 16;
			int64_t red = (int64_t)d * (32768 * r - 29763 * g - 3005 * b) >> 16;
			s.cb[c] = follow(s.means + all + c, clamp((int)((blue + 32768) >> 16) + 128, 0, 255));
			s.cr[c] = follow(s.means + all + all / 4 + c, clamp((int)((red + 32768) >> 16) + 128, 0, 255));
			// The luma with the least error in R, G and B, given the chroma that the pixels share.
			struct offsets o = offsets(s.cb[c], s.cr[c]);
			for (int k = 0; k < n; k++) {
				int sum = color[k][0] + color[k][1] + color[k][2] - o.r - o.g - o.b;
				s.y[at[k]] = follow(s.means + at[k], clamp((sum * 21846 + 32768) >> 16, 0, 255));
			}
		}
	}
}

// predict returns the map value that a pixel's neighbors suggest.
static inline uint8_t spatial(const uint8_t *map, int x, int y, int width)
{
	size_t i = (size_t)y * width + x;
	uint8_t west = x ? map[i - 1] : 0, north = y ? map[i - width] : 0, corner = x && y ? map[i - width - 1] : 0;

	return north != corner ? north : west;
}

static inline uint8_t predict(const uint8_t *map, const uint8_t *previous, int x, int y, int width)
{
	size_t i = (size_t)y * width + x;

	if (!previous)
		return spatial(map, x, y, width);
	if (x && y && map[i - 1] != previous[i - 1] && map[i - width] != previous[i - width])
		return spatial(map, x, y, width);
	return previous[i];
}

// candidates writes the values that symbols below LITERAL mean and returns their number.
static inline int candidates(const uint8_t *map, const uint8_t *previous, int x, int y, int width, uint8_t prediction,
			     uint8_t list[4])
{
	size_t i = (size_t)y * width + x;
	uint8_t all[4] = {0, x ? map[i - 1] : 0, y ? map[i - width] : 0, previous ? previous[i] : 0};
	int n = 0;

	for (int k = 0; k < 4; k++) {
		int have = all[k] == prediction;
		for (int j = 0; j < n; j++)
			have |= list[j] == all[k];
		if (!have)
			list[n++] = all[k];
	}
	return n;
}

static uint8_t *put_run(uint8_t *out, size_t run)
{
	for (; run >= 255; run -= 255)
		*out++ = 255;
	*out++ = (uint8_t)run;
	return out;
}

size_t wv_map(const uint8_t *map, const uint8_t *previous, int width, int height, uint8_t *out)
{
	size_t pixels = (size_t)width * height, run = 0;
	uint8_t *first = out + 2 * pixels + 1, *runs = out, *symbols = first; // runs have at most 2*pixels + 1 bytes

	for (int y = 0; y < height; y++) {
		size_t row = (size_t)y * width;
		if (previous && memcmp(map + row, previous + row, (size_t)width) == 0) { // predicted, as no W is changed
			run += (size_t)width;
			continue;
		}
		for (int x = 0; x < width; x++) {
			uint8_t value = map[row + x], prediction = predict(map, previous, x, y, width);
			if (value == prediction) {
				run++;
				continue;
			}
			uint8_t list[4];
			int n = candidates(map, previous, x, y, width, prediction, list), k = 0;
			while (k < n && list[k] != value)
				k++;
			*symbols++ = (uint8_t)(k < n ? k : value + LITERAL);
			runs = put_run(runs, run);
			run = 0;
		}
	}
	runs = put_run(runs, run);
	memmove(runs, first, (size_t)(symbols - first));
	return (size_t)(runs - out) + (size_t)(symbols - first);
}

// count_runs returns the bytes of the runs and sets wrong to the pixels they list; 0 if they are
// invalid.
static size_t count_runs(const uint8_t *raw, size_t length, size_t pixels, size_t *wrong)
{
	size_t at = 0, pos = 0, n = 0;

	for (;;) {
		uint8_t b;
		do {
			if (at == length)
				return 0;
			b = raw[at++];
			pos += b;
			if (pos > pixels)
				return 0;
		} while (b == 255);
		if (pos == pixels)
			break;
		n++;
		pos++;
	}
	*wrong = n;
	return at;
}

static size_t next_run(const uint8_t **raw)
{
	size_t run = 0;
	uint8_t b;

	do {
		b = *(*raw)++;
		run += b;
	} while (b == 255);
	return run;
}

size_t wv_runs(const uint8_t *raw, size_t length, int width, int height)
{
	size_t wrong;

	return count_runs(raw, length, (size_t)width * height, &wrong);
}

ptrdiff_t wv_unmap(const uint8_t *raw, size_t length, uint8_t *map, const uint8_t *previous, int width, int height)
{
	size_t pixels = (size_t)width * height, wrong = 0, points = 0;
	size_t runs = count_runs(raw, length, pixels, &wrong);

	if (runs == 0 || length - runs != wrong)
		return -1;
	const uint8_t *symbols = raw + runs;
	size_t next = next_run(&raw); // the next wrong pixel
	for (int y = 0; y < height; y++) {
		size_t row = (size_t)y * width;
		for (int x = 0; x < width; x++) {
			size_t i = row + x;
			if (previous && (x == 0 || map[i - 1] == previous[i - 1])) { // P up to the next wrong pixel
				size_t n = smaller(next, row + width) - i;
				memcpy(map + i, previous + i, n);
				x += (int)n;
				i += n;
				if (x == width)
					break;
			}
			uint8_t value = predict(map, previous, x, y, width);
			if (i == next) {
				uint8_t list[4], symbol = *symbols++;
				int n = candidates(map, previous, x, y, width, value, list);
				if (symbol < LITERAL && symbol >= n)
					return -1;
				uint8_t actual = symbol < LITERAL ? list[symbol] : (uint8_t)(symbol - LITERAL);
				if (actual == value)
					return -1;
				value = actual;
				next += 1 + next_run(&raw);
			}
			map[i] = value;
		}
	}
	for (size_t i = 0; i < pixels; i++)
		points += map[i] != 0;
	return (ptrdiff_t)points;
}

static void restore_depth(const uint8_t *map, const uint8_t *luma, int width, const uint16_t *depth_of, uint16_t *depth)
{
	for (int x = 0; x < width; x++) {
		int h = map[x] - 1, q = clamp(luma[x] - LOWEST, 0, SEGMENT);
		int level = SEGMENT * h + (h & 1 ? SEGMENT - q : q);
		depth[x] = map[x] ? depth_of[level] : 0;
	}
}

// add adds offsets to the luma of pixels with a point; the others become 0.
static void add(const uint8_t *map, const uint8_t *luma, const int16_t *offset, int width, uint8_t *out)
{
	for (int x = 0; x < width; x++) {
		int16_t v = (int16_t)(luma[x] + offset[x]);
		v = v < 0 ? 0 : v;
		v = v > 255 ? 255 : v;
		out[x] = map[x] ? (uint8_t)v : 0;
	}
}

// The parts of offsets that each chroma value adds; those of G are in 1/65536.
struct chroma {
	int16_t r[256], b[256];
	int32_t g_cb[256], g_cr[256];
};

static void tabulate(struct chroma *t)
{
	for (int v = 0; v < 256; v++) {
		struct offsets o = offsets(v, v);
		t->r[v] = (int16_t)o.r, t->b[v] = (int16_t)o.b;
		t->g_cb[v] = -12276 * (v - 128), t->g_cr[v] = -30679 * (v - 128) + 32768;
	}
}

// restore_color writes a row of colors.
static void restore_color(const struct chroma *t, const uint8_t *map, int width, const uint8_t *luma,
			  const uint8_t *cb, const uint8_t *cr, uint8_t *rgb)
{
	int16_t offset[3][MAX_WIDTH + 1];
	uint8_t r[MAX_WIDTH], g[MAX_WIDTH], b[MAX_WIDTH];
	int x;

	for (x = 0; x < width; x += 2) {
		uint8_t blue = cb[x / 2], red = cr[x / 2];
		offset[0][x] = offset[0][x + 1] = t->r[red];
		offset[1][x] = offset[1][x + 1] = (int16_t)((t->g_cb[blue] + t->g_cr[red]) >> 16);
		offset[2][x] = offset[2][x + 1] = t->b[blue];
	}
	add(map, luma, offset[0], width, r);
	add(map, luma, offset[1], width, g);
	add(map, luma, offset[2], width, b);
	for (x = 0; x < width - 1; x++, rgb += 3) { // the next pixel overwrites the fourth byte
		uint32_t all = r[x] | (uint32_t)g[x] << 8 | (uint32_t)b[x] << 16;
		memcpy(rgb, &all, 4);
	}
	rgb[0] = r[x], rgb[1] = g[x], rgb[2] = b[x];
}

void wv_restore(const uint8_t *map, int width, int height, const uint8_t *luma, int stride, struct wv_planes color,
		const uint16_t *depth_of, uint16_t *depth, uint8_t *rgb)
{
	struct chroma table;

	tabulate(&table);
	for (int y = 0; y < height; y++) {
		size_t chroma = (size_t)(y / 2) * color.chroma_stride;
		restore_depth(map, luma + (size_t)y * stride, width, depth_of, depth);
		restore_color(&table, map, width, color.y + (size_t)y * color.stride, color.cb + chroma, color.cr + chroma, rgb);
		map += width, depth += width, rgb += 3 * (size_t)width;
	}
}

struct wv_zstd {
	ZSTD_CCtx *c;
	ZSTD_DCtx *d;
};

struct wv_zstd *wv_zstd_new(void)
{
	struct wv_zstd *z = calloc(1, sizeof *z);
	if (!z)
		return NULL;
	z->c = ZSTD_createCCtx();
	z->d = ZSTD_createDCtx();
	if (!z->c || !z->d) {
		wv_zstd_free(z);
		return NULL;
	}
	// As for layout A: literals only, with a Huffman table for each plane.
	ZSTD_CCtx_setParameter(z->c, ZSTD_c_strategy, ZSTD_fast);
	ZSTD_CCtx_setParameter(z->c, ZSTD_c_targetLength, ZSTD_cParam_getBounds(ZSTD_c_targetLength).upperBound);
	ZSTD_CCtx_setParameter(z->c, ZSTD_c_literalCompressionMode, ZSTD_ps_enable);
	return z;
}

void wv_zstd_free(struct wv_zstd *z)
{
	if (!z)
		return;
	ZSTD_freeCCtx(z->c);
	ZSTD_freeDCtx(z->d);
	free(z);
}

size_t wv_compress_bound(size_t length) { return ZSTD_compressBound(length); }

size_t wv_compress(struct wv_zstd *z, const uint8_t *in, size_t length, size_t runs, uint8_t *out, size_t room)
{
	ZSTD_outBuffer to = {out, room, 0};
	ZSTD_inBuffer from = {in, runs, 0};

	ZSTD_CCtx_reset(z->c, ZSTD_reset_session_only);
	size_t left = ZSTD_compressStream2(z->c, &to, &from, ZSTD_e_flush);
	if (ZSTD_isError(left) || left != 0)
		return 0;
	from.size = length;
	left = ZSTD_compressStream2(z->c, &to, &from, ZSTD_e_end);
	return ZSTD_isError(left) || left != 0 ? 0 : to.pos;
}

const char *wv_decompress(struct wv_zstd *z, const uint8_t *in, size_t length, uint8_t *out, size_t room)
{
	size_t n = ZSTD_findFrameCompressedSize(in, length);

	if (ZSTD_isError(n))
		return ZSTD_getErrorName(n);
	if (n != length)
		return "bytes follow the frame";
	n = ZSTD_decompressDCtx(z->d, out, room, in, length);
	if (ZSTD_isError(n))
		return ZSTD_getErrorName(n);
	return n == room ? NULL : "its length differs from the raw length";
}
