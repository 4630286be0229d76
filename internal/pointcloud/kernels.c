//go:build cgo

#define ZSTD_STATIC_LINKING_ONLY // ZSTD_c_literalCompressionMode

#include "kernels.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

enum {
	ESCAPE = 15, // nibble of a residual that follows among the escapes
	MAX_COORD = 0xffff,
	MAX_GREEN = 0xff,
	MAX_CHROMA = 1020, // largest zigzag residuals
	MAX_VARINT = 3,    // bytes
	RECORD_LEVEL = 2,  // LiveScan3D's zstd level
	PADDING = 32,      // bytes that may be read or written past a buffer's end
};

// A pixel as the predictor sees it: depth, R−G, G, B−G.
typedef int32_t v4 __attribute__((vector_size(16)));

#define UNLIKELY(x) __builtin_expect(!!(x), 0)

static inline uint32_t zigzag(int32_t v) { return (uint32_t)v << 1 ^ (uint32_t)(v >> 31); }
static inline int32_t unzigzag(uint32_t z) { return (int32_t)(z >> 1) ^ -(int32_t)(z & 1); }
static inline size_t smaller(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t packed(size_t nibbles) { return (nibbles + 1) / 2; }

// escapes_in tells whether any of the four nibbles of v is an escape.
static inline uint32_t escapes_in(uint32_t v) { return v & v >> 1 & v >> 2 & v >> 3 & 0x1111; }

struct buffer {
	uint8_t *p;
	size_t capacity;
};

static int reserve(struct buffer *b, size_t need)
{
	need += PADDING;
	if (need <= b->capacity)
		return 1;
	free(b->p);
	b->p = NULL;
	b->capacity = 0;
	// Vectors are aligned to 16 bytes.
	if (posix_memalign((void **)&b->p, 64, need) != 0)
		return 0;
	b->capacity = need;
	return 1;
}

static struct hcpf_result fail(int error) { return (struct hcpf_result){.error = error}; }
static struct hcpf_result fail_zstd(size_t code)
{
	return (struct hcpf_result){.error = HCPF_BAD_ZSTD, .zstd = ZSTD_getErrorName(code)};
}

// Planes being written, each with room for its worst case, so that the kernels
// need no bounds. Nibble planes hold a byte a nibble until they are packed.
enum { MASK, COORD_X, COORD_Y, COORD_Z, GREEN, CHROMA, ESCAPES, PLANES };

struct planes {
	uint8_t *start[PLANES], *end[PLANES];
};

struct hcpf_encoder {
	ZSTD_CCtx *zstd;
	int level;
	struct buffer raw, rows, bits;
};

struct hcpf_encoder *hcpf_encoder_new(int level)
{
	struct hcpf_encoder *e = calloc(1, sizeof *e);
	if (!e)
		return NULL;
	e->level = level;
	e->zstd = ZSTD_createCCtx();
	if (!e->zstd) {
		free(e);
		return NULL;
	}
	return e;
}

void hcpf_encoder_free(struct hcpf_encoder *e)
{
	if (!e)
		return;
	ZSTD_freeCCtx(e->zstd);
	free(e->raw.p);
	free(e->rows.p);
	free(e->bits.p);
	free(e);
}

static size_t mask_bound(size_t pixels) { return pixels + pixels / 255 + 1; }
size_t hcpf_grid_raw_bound(size_t pixels) { return mask_bound(pixels) + 2 * packed(pixels) + pixels + 9 * pixels; }
size_t hcpf_points_raw_bound(size_t points) { return 4 * packed(points) + points + 15 * points; }
// Every plane starts a block of its own.
size_t hcpf_compress_bound(size_t raw) { return ZSTD_compressBound(raw) + 16 * PLANES; }

// lay_out places the planes one after the other in the encoder's buffer.
static int lay_out(struct hcpf_encoder *e, struct planes *p, const size_t room[PLANES])
{
	size_t total = 0;
	for (int i = 0; i < PLANES; i++)
		total += room[i];
	if (!reserve(&e->raw, total))
		return 0;
	uint8_t *at = e->raw.p;
	for (int i = 0; i < PLANES; i++) {
		p->start[i] = p->end[i] = at;
		at += room[i];
	}
	return 1;
}

// pack puts two nibbles in a byte, the first in its high half, in place.
static void pack(struct planes *p, int plane)
{
	uint8_t *nibbles = p->start[plane];
	size_t n = p->end[plane] - nibbles, i = 0, out = 0;
	nibbles[n] = 0; // for an odd n; the plane has room
	for (; i + 64 <= n; i += 64, out += 32) {
		uint16_t in[32];
		uint8_t b[32];
		memcpy(in, nibbles + i, 64);
		for (int k = 0; k < 32; k++)
			b[k] = (uint8_t)(in[k] << 4 | in[k] >> 8);
		memcpy(nibbles + out, b, 32);
	}
	for (; i < n; i += 2)
		nibbles[out++] = (uint8_t)(nibbles[i] << 4 | nibbles[i + 1]);
	p->end[plane] = nibbles + out;
}

// set_level chooses zstd's parameters for planes of residuals or for records.
static void set_level(struct hcpf_encoder *e, int records)
{
	ZSTD_CCtx_reset(e->zstd, ZSTD_reset_session_and_parameters);
	if (e->level || records) {
		ZSTD_CCtx_setParameter(e->zstd, ZSTD_c_compressionLevel, e->level ? e->level : RECORD_LEVEL);
		return;
	}
	// Residuals are noise: a match costs more bits than its literals. The longest
	// search step all but turns matching off; Huffman coding must then be asked for.
	ZSTD_CCtx_setParameter(e->zstd, ZSTD_c_compressionLevel, 1);
	ZSTD_CCtx_setParameter(e->zstd, ZSTD_c_targetLength, ZSTD_TARGETLENGTH_MAX);
	ZSTD_CCtx_setParameter(e->zstd, ZSTD_c_literalCompressionMode, ZSTD_lcm_huffman);
}

// compress writes the planes as one zstd frame in which each starts a block, so
// that each has entropy tables of its own.
static struct hcpf_result compress(struct hcpf_encoder *e, const struct planes *p, int records, uint8_t *dst, size_t capacity)
{
	size_t total = 0;
	int last = 0;
	for (int i = 0; i < PLANES; i++) {
		total += p->end[i] - p->start[i];
		if (p->end[i] > p->start[i])
			last = i;
	}
	set_level(e, records);
	size_t r = ZSTD_CCtx_setPledgedSrcSize(e->zstd, total);
	if (ZSTD_isError(r))
		return fail_zstd(r);
	ZSTD_outBuffer out = {dst, capacity, 0};
	for (int i = 0; i <= last; i++) {
		size_t n = p->end[i] - p->start[i];
		if (n == 0 && i < last)
			continue;
		ZSTD_inBuffer in = {p->start[i], n, 0};
		r = ZSTD_compressStream2(e->zstd, &out, &in, i < last ? ZSTD_e_flush : ZSTD_e_end);
		if (ZSTD_isError(r))
			return fail_zstd(r);
		if (r != 0)
			return fail(HCPF_NO_MEMORY);
	}
	return (struct hcpf_result){.length = out.pos, .raw_length = (uint32_t)total};
}

// put_escape writes what a nibble could not say of z as a base-128 varint.
static inline uint8_t *put_escape(uint8_t *out, uint32_t z)
{
	for (z -= ESCAPE; z >= 0x80; z >>= 7)
		*out++ = (uint8_t)(z | 0x80);
	*out++ = (uint8_t)z;
	return out;
}

// Validity bits of a row: words of 64 pixels, pixel 0 in bit 0 of the first.
static inline size_t words_of(int width) { return ((size_t)width + 63) / 64; }

static void valid_row(uint64_t *bits, const uint16_t *depth, int width, int step)
{
	for (int x = 0; x < width; x += 64) {
		uint64_t w = 0;
		int n = (int)smaller(64, width - x), k = 0;
#ifdef __SSE2__
		const __m128i zero = _mm_setzero_si128();
		for (; step == 1 && k + 16 <= n; k += 16) {
			const __m128i *p = (const __m128i *)(depth + x + k);
			__m128i lo = _mm_cmpeq_epi16(_mm_loadu_si128(p), zero), hi = _mm_cmpeq_epi16(_mm_loadu_si128(p + 1), zero);
			w |= (uint64_t)(uint16_t)~_mm_movemask_epi8(_mm_packs_epi16(lo, hi)) << k;
		}
#endif
		for (; k < n; k++)
			w |= (uint64_t)(depth[(size_t)(x + k) * step] != 0) << k;
		bits[x / 64] = w;
	}
}

// put_gap appends the pixels between two mispredicted bits.
static inline uint8_t *put_gap(uint8_t *out, size_t gap)
{
	for (; gap >= 255; gap -= 255)
		*out++ = 255;
	*out++ = (uint8_t)gap;
	return out;
}

// put_mask_row appends the gaps between the row's mispredicted bits; *gap carries
// over from row to row. A bit is predicted by the one above where that differs from
// its left neighbour, and by the bit to the left where it does not.
static uint8_t *put_mask_row(uint8_t *out, const uint64_t *here, const uint64_t *above, int width, size_t *gap)
{
	uint64_t carry = above[0] & 1, carry_above = carry;
	size_t from = 0; // first pixel of the row not yet in gap
	for (size_t i = 0; i < words_of(width); i++) {
		uint64_t n = above[i], nw = n << 1 | carry_above, w = here[i] << 1 | carry;
		uint64_t edge = n ^ nw;
		uint64_t wrong = here[i] ^ ((edge & n) | (~edge & w));
		carry = here[i] >> 63;
		carry_above = n >> 63;
		if ((size_t)width - 64 * i < 64)
			wrong &= ((uint64_t)1 << (width - 64 * i)) - 1;
		for (; wrong; wrong &= wrong - 1) {
			size_t x = 64 * i + __builtin_ctzll(wrong);
			out = put_gap(out, *gap + x - from);
			*gap = 0;
			from = x + 1;
		}
	}
	*gap += width - from;
	return out;
}

struct hcpf_decoder {
	ZSTD_DCtx *zstd;
	struct buffer raw, nibbles, rows, bits;
	// Residuals of a byte of two nibbles, 0 where one escapes: depth and G, and R−G
	// and B−G.
	v4 depth_green[256], chroma[256];
};

struct hcpf_decoder *hcpf_decoder_new(void)
{
	struct hcpf_decoder *d = NULL;
	if (posix_memalign((void **)&d, 64, sizeof *d) != 0)
		return NULL;
	memset(d, 0, sizeof *d);
	d->zstd = ZSTD_createDCtx();
	if (!d->zstd) {
		free(d);
		return NULL;
	}
	for (uint32_t b = 0; b < 256; b++) {
		int32_t high = b >> 4 == ESCAPE ? 0 : unzigzag(b >> 4), low = (b & 15) == ESCAPE ? 0 : unzigzag(b & 15);
		d->depth_green[b] = (v4){high, 0, low, 0};
		d->chroma[b] = (v4){0, high, 0, low};
	}
	return d;
}

void hcpf_decoder_free(struct hcpf_decoder *d)
{
	if (!d)
		return;
	ZSTD_freeDCtx(d->zstd);
	free(d->raw.p);
	free(d->nibbles.p);
	free(d->rows.p);
	free(d->bits.p);
	free(d);
}

// decompress fills dst with exactly raw_length bytes or fails. The source must be
// one zstd frame and nothing else.
static struct hcpf_result decompress(struct hcpf_decoder *d, uint8_t *dst, size_t raw_length, const uint8_t *src, size_t length)
{
	size_t n = ZSTD_findFrameCompressedSize(src, length);
	if (ZSTD_isError(n))
		return fail_zstd(n);
	if (n != length)
		return (struct hcpf_result){.error = HCPF_BAD_ZSTD, .zstd = "bytes after the frame"};
	n = ZSTD_decompressDCtx(d->zstd, dst, raw_length, src, length);
	if (ZSTD_isError(n))
		return ZSTD_getErrorCode(n) == ZSTD_error_dstSize_tooSmall ? fail(HCPF_BAD_RAW_LENGTH) : fail_zstd(n);
	return n == raw_length ? (struct hcpf_result){0} : fail(HCPF_BAD_RAW_LENGTH);
}

// Escapes being read. bad is set by one that is missing or out of range; what is
// read from then on means nothing.
struct escapes {
	const uint8_t *at, *end;
	int bad;
};

// take gives the residual of a nibble; most is the largest zigzag that may come.
static inline int32_t take(struct escapes *e, uint32_t nibble, uint32_t most)
{
	if (nibble < ESCAPE)
		return unzigzag(nibble);
	uint32_t rest = 0, b = 0x80;
	for (int i = 0; i < MAX_VARINT && b >= 0x80 && e->at < e->end; i++) {
		b = *e->at++;
		rest |= (b & 0x7f) << 7 * i;
	}
	if (b >= 0x80 || rest > most - ESCAPE) {
		e->bad = 1;
		return 0;
	}
	return unzigzag(rest + ESCAPE);
}

// unpack undoes pack: nibble i of src at dst[i]. It may write a byte more.
static void unpack(uint8_t *restrict dst, const uint8_t *restrict src, size_t n)
{
	for (size_t i = 0; i < packed(n); i++) {
		uint16_t pair = src[i] >> 4 | (src[i] & 15) << 8;
		memcpy(dst + 2 * i, &pair, 2);
	}
}

// unpack_two gives byte i the nibbles i of two planes, that of high above.
static void unpack_two(uint8_t *restrict dst, const uint8_t *restrict high, const uint8_t *restrict low, size_t n)
{
	for (size_t i = 0; i < packed(n); i++) {
		uint16_t pair = (high[i] & 0xf0) | low[i] >> 4 | ((high[i] & 15) << 4 | (low[i] & 15)) << 8;
		memcpy(dst + 2 * i, &pair, 2);
	}
}

// take_mask turns the gaps into the bits of every row and counts them. It gives
// the bytes it read, or 0 where they do not add up to the grid.
static size_t take_mask(uint64_t *rows, int width, int height, const uint8_t *raw, size_t length, size_t *points)
{
	size_t words = words_of(width), pixels = (size_t)width * height, at = 0, pos = 0;
	memset(rows, 0, sizeof(uint64_t) * words * height);
	// First the wrong bits, then the rows from them.
	for (size_t y = 0, row = 0;; pos++) {
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
		for (; pos - row >= (size_t)width; row += width)
			y++;
		rows[y * words + (pos - row) / 64] |= (uint64_t)1 << ((pos - row) % 64);
	}
	*points = 0;
	for (int y = 0; pixels > 0 && y < height; y++) {
		uint64_t *here = rows + y * words;
		const uint64_t *above = y ? here - words : NULL;
		uint64_t carry = above ? above[0] & 1 : 0, carry_above = carry;
		for (size_t i = 0; i < words; i++) {
			uint64_t n = above ? above[i] : 0, wrong = here[i];
			uint64_t edge = n ^ (n << 1 | carry_above), valid = 0;
			carry_above = n >> 63;
			// Between the bits of events the validity stays as it is.
			int from = 0;
			for (uint64_t events = edge | wrong; events; events &= events - 1) {
				int x = __builtin_ctzll(events);
				if (carry)
					valid |= ((uint64_t)1 << x) - ((uint64_t)1 << from);
				if (edge >> x & 1)
					carry = n >> x & 1;
				carry ^= wrong >> x & 1;
				from = x;
			}
			if (carry)
				valid |= -((uint64_t)1 << from);
			if ((size_t)width - 64 * i < 64)
				valid &= ((uint64_t)1 << (width - 64 * i)) - 1;
			here[i] = valid;
			*points += __builtin_popcountll(valid);
		}
	}
	return at;
}

// What the kernels over rows work on. Pixel x of a row stands at [x+1], its left
// neighbour or stand-in at [x]; an invalid pixel has the value it was predicted to
// have.
struct row_encoding {
	struct planes *planes;
	struct hcpf_grid grid;
	int width, height; // of the share
	v4 *rows;          // 2*(width+1), the first half zero
	uint64_t *bits;    // 2*words_of(width), the first half zero
};

struct row_decoding {
	const struct hcpf_decoder *tables;
	const uint8_t *depth_green, *chroma; // a byte a point
	struct escapes *escapes;
	struct hcpf_grid grid;
	int width, height;
	const uint64_t *bits; // words_of(width) per row
	v4 *rows;             // 2*(width+1), the first half zero
};

// The kernels once for any processor and once for AVX2.
#define VARIANT(f) f##_any
#define TARGET
#include "rows.h"
#undef VARIANT
#undef TARGET

#if defined(__x86_64__) && defined(__GNUC__)
#define VARIANT(f) f##_avx2
#define TARGET __attribute__((target("avx2")))
#define HAVE_AVX2
#include "rows.h"

static void encode_rows(const struct row_encoding *r)
{
	__builtin_cpu_supports("avx2") ? encode_rows_avx2(r) : encode_rows_any(r);
}

static void decode_rows(const struct row_decoding *r)
{
	__builtin_cpu_supports("avx2") ? decode_rows_avx2(r) : decode_rows_any(r);
}
#else
static void encode_rows(const struct row_encoding *r) { encode_rows_any(r); }
static void decode_rows(const struct row_decoding *r) { decode_rows_any(r); }
#endif

static void share_size(const struct hcpf_grid *g, int *width, int *height)
{
	*width = (g->width - g->dx + g->step - 1) / g->step;
	*height = (g->height - g->dy + g->step - 1) / g->step;
}

struct hcpf_result hcpf_encode_grid(struct hcpf_encoder *e, struct hcpf_grid g, uint8_t *dst, size_t capacity)
{
	int width, height;
	share_size(&g, &width, &height);
	size_t n = (size_t)width * height, words = words_of(width);
	struct planes p;
	const size_t room[PLANES] = {
		[MASK] = mask_bound(n), [COORD_X] = n + 1, [GREEN] = n + 1, [CHROMA] = n, [ESCAPES] = 9 * n,
	};
	if (!lay_out(e, &p, room) || !reserve(&e->rows, 2 * sizeof(v4) * (width + 1)) || !reserve(&e->bits, 2 * sizeof(uint64_t) * words))
		return fail(HCPF_NO_MEMORY);
	struct row_encoding rows = {&p, g, width, height, (v4 *)e->rows.p, (uint64_t *)e->bits.p};
	memset(rows.rows, 0, sizeof(v4) * (width + 1));
	memset(rows.bits, 0, sizeof(uint64_t) * words);
	encode_rows(&rows);
	size_t points = p.end[CHROMA] - p.start[CHROMA];
	pack(&p, COORD_X);
	pack(&p, GREEN);
	struct hcpf_result r = compress(e, &p, 0, dst, capacity);
	r.points = (uint32_t)points;
	return r;
}

struct hcpf_result hcpf_decode_grid(struct hcpf_decoder *d, struct hcpf_grid g, uint32_t points, uint32_t raw_length, const uint8_t *src, size_t length)
{
	int width, height;
	share_size(&g, &width, &height);
	size_t n = points, valid;
	if (!reserve(&d->raw, raw_length) || !reserve(&d->nibbles, n + 1) || !reserve(&d->rows, 2 * sizeof(v4) * (width + 1)) ||
	    !reserve(&d->bits, sizeof(uint64_t) * words_of(width) * height))
		return fail(HCPF_NO_MEMORY);
	const uint8_t *raw = d->raw.p, *end = raw + raw_length;
	struct hcpf_result r = decompress(d, d->raw.p, raw_length, src, length);
	if (r.error)
		return r;
	uint64_t *bits = (uint64_t *)d->bits.p;
	size_t mask = take_mask(bits, width, height, raw, raw_length, &valid);
	if (mask == 0 || valid != n || raw_length - mask < 2 * packed(n) + n)
		return fail(HCPF_BAD_PLANES);
	const uint8_t *depth = raw + mask, *green = depth + packed(n), *chroma = green + packed(n);
	unpack_two(d->nibbles.p, depth, green, n);
	struct escapes escapes = {chroma + n, end, 0};
	struct row_decoding rows = {d, d->nibbles.p, chroma, &escapes, g, width, height, bits, (v4 *)d->rows.p};
	memset(rows.rows, 0, sizeof(v4) * (width + 1));
	decode_rows(&rows);
	if (escapes.bad || escapes.at != end)
		return fail(HCPF_BAD_PLANES);
	return (struct hcpf_result){.points = points};
}

static size_t share_count(const struct hcpf_points *c)
{
	return c->count > c->index ? (c->count - c->index + c->step - 1) / c->step : 0;
}

static void put_records(struct planes *p, const struct hcpf_points *c)
{
	uint8_t *out = p->end[COORD_X];
	for (size_t i = c->index; i < c->count; i += c->step, out += 9) {
		for (int k = 0; k < 3; k++) {
			uint16_t v = (uint16_t)c->xyz[3 * i + k];
			out[2 * k] = (uint8_t)v;
			out[2 * k + 1] = (uint8_t)(v >> 8);
		}
		memcpy(out + 6, c->rgb + 3 * i, 3);
	}
	p->end[COORD_X] = out;
}

static void take_records(const struct hcpf_points *c, const uint8_t *raw)
{
	for (size_t i = 0; i < c->count; i++, raw += 9) {
		for (int k = 0; k < 3; k++)
			c->xyz[3 * i + k] = (int16_t)(raw[2 * k] | raw[2 * k + 1] << 8);
		memcpy(c->rgb + 3 * i, raw + 6, 3);
	}
}

static void put_deltas(struct planes *p, const struct hcpf_points *c)
{
	uint8_t *x = p->end[COORD_X], *y = p->end[COORD_Y], *z = p->end[COORD_Z];
	uint8_t *green = p->end[GREEN], *chroma = p->end[CHROMA], *escapes = p->end[ESCAPES];
	int32_t last[6] = {0};
	for (size_t i = c->index; i < c->count; i += c->step) {
		const int16_t *v = c->xyz + 3 * i;
		const uint8_t *rgb = c->rgb + 3 * i;
		int32_t here[6] = {v[0], v[1], v[2], rgb[0] - rgb[1], rgb[1], rgb[2] - rgb[1]};
		uint32_t q[6], most = 0;
		for (int k = 0; k < 6; k++) {
			int32_t r = here[k] - last[k];
			last[k] = here[k];
			q[k] = zigzag(k < 3 ? (int16_t)r : k == 4 ? (int8_t)r : r);
			most = q[k] > most ? q[k] : most;
		}
		if (most >= ESCAPE) {
			for (int k = 0; k < 6; k++)
				if (q[k] >= ESCAPE) {
					escapes = put_escape(escapes, q[k]);
					q[k] = ESCAPE;
				}
		}
		*x++ = (uint8_t)q[0];
		*y++ = (uint8_t)q[1];
		*z++ = (uint8_t)q[2];
		*green++ = (uint8_t)q[4];
		*chroma++ = (uint8_t)(q[3] << 4 | q[5]);
	}
	p->end[COORD_X] = x;
	p->end[COORD_Y] = y;
	p->end[COORD_Z] = z;
	p->end[GREEN] = green;
	p->end[CHROMA] = chroma;
	p->end[ESCAPES] = escapes;
	pack(p, COORD_X);
	pack(p, COORD_Y);
	pack(p, COORD_Z);
	pack(p, GREEN);
}

struct hcpf_result hcpf_encode_points(struct hcpf_encoder *e, struct hcpf_points c, int interleaved, uint8_t *dst, size_t capacity)
{
	size_t n = share_count(&c);
	struct planes p;
	const size_t records[PLANES] = {[COORD_X] = 9 * n};
	const size_t deltas[PLANES] = {
		[COORD_X] = n + 1, [COORD_Y] = n + 1, [COORD_Z] = n + 1, [GREEN] = n + 1, [CHROMA] = n, [ESCAPES] = 15 * n,
	};
	if (!lay_out(e, &p, interleaved ? records : deltas))
		return fail(HCPF_NO_MEMORY);
	if (interleaved)
		put_records(&p, &c);
	else
		put_deltas(&p, &c);
	struct hcpf_result r = compress(e, &p, interleaved, dst, capacity);
	r.points = (uint32_t)n;
	return r;
}

struct hcpf_result hcpf_decode_points(struct hcpf_decoder *d, struct hcpf_points c, int interleaved, uint32_t raw_length, const uint8_t *src, size_t length)
{
	size_t n = c.count;
	if (!reserve(&d->raw, raw_length) || !reserve(&d->nibbles, 4 * (n + 1)))
		return fail(HCPF_NO_MEMORY);
	const uint8_t *raw = d->raw.p, *end = raw + raw_length;
	struct hcpf_result r = decompress(d, d->raw.p, raw_length, src, length);
	if (r.error)
		return r;
	r.points = (uint32_t)n;
	if (interleaved) {
		take_records(&c, raw);
		return r;
	}
	const uint8_t *nibbles[4];
	for (int k = 0; k < 4; k++) {
		uint8_t *plane = d->nibbles.p + k * (n + 1);
		unpack(plane, raw + k * packed(n), n);
		nibbles[k] = plane;
	}
	const uint8_t *chroma = raw + 4 * packed(n);
	struct escapes escapes = {chroma + n, end, 0};
	uint32_t v[6] = {0}; // only the low 16 or 8 bits count
	for (size_t i = 0; i < n; i++) {
		for (int k = 0; k < 3; k++) {
			v[k] += (uint32_t)take(&escapes, nibbles[k][i], MAX_COORD);
			c.xyz[3 * i + k] = (int16_t)v[k];
		}
		v[3] += (uint32_t)take(&escapes, chroma[i] >> 4, MAX_CHROMA);
		v[4] += (uint32_t)take(&escapes, nibbles[3][i], MAX_GREEN);
		v[5] += (uint32_t)take(&escapes, chroma[i] & 15, MAX_CHROMA);
		c.rgb[3 * i] = (uint8_t)(v[3] + v[4]);
		c.rgb[3 * i + 1] = (uint8_t)v[4];
		c.rgb[3 * i + 2] = (uint8_t)(v[5] + v[4]);
	}
	if (escapes.bad || escapes.at != end)
		return fail(HCPF_BAD_PLANES);
	return r;
}
