//go:build cgo

#define ZSTD_STATIC_LINKING_ONLY // ZSTD_c_literalCompressionMode

#include "kernels.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the kernels lay out lanes and nibbles for little-endian processors"
#endif

enum {
	ESCAPE = 15, // nibble of a residual stored as an escape
	MAX_COORD = 0xffff,
	MAX_GREEN = 0xff,
	MAX_CHROMA = 1020, // largest zigzag residuals
	MAX_VARINT = 3,    // bytes
	RECORD_LEVEL = 2,  // LiveScan3D's zstd level
	PADDING = 32,      // spare bytes per buffer, for vector access at its end
};

// A pixel in the predictor: four 16-bit lanes with depth, R−G, G in the high byte, and B−G. The top
// bits of depth and G are flipped to let signed comparison order them; sums and differences mod
// 2¹⁶ are then as specified, G's mod 2⁸. v8 holds two pixels, or one and padding; s8 is the signed
// version.
typedef uint16_t v8 __attribute__((vector_size(16)));
typedef int16_t s8 __attribute__((vector_size(16)));

#define PIXEL(depth, rg, g, bg) \
	((uint64_t)(uint16_t)(depth) | (uint64_t)(uint16_t)(rg) << 16 | \
	 (uint64_t)((uint32_t)(g) & 0xff) << 40 | (uint64_t)(uint16_t)(bg) << 48)
#define FLIPPED PIXEL(0x8000, 0, 0x80, 0)

#define UNLIKELY(x) __builtin_expect(!!(x), 0)

static inline uint32_t zigzag(int32_t v) { return (uint32_t)v << 1 ^ (uint32_t)(v >> 31); }
static inline int32_t unzigzag(uint32_t z) { return (int32_t)(z >> 1) ^ -(int32_t)(z & 1); }
static inline size_t smaller(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t packed(size_t nibbles) { return (nibbles + 1) / 2; }

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
	b->p = malloc(need);
	if (!b->p)
		return 0;
	b->capacity = need;
	return 1;
}

static struct hcpf_result fail(int error) { return (struct hcpf_result){.error = error}; }
static struct hcpf_result fail_zstd(size_t code)
{
	return (struct hcpf_result){.error = HCPF_BAD_ZSTD, .zstd = ZSTD_getErrorName(code)};
}

// Output planes with room for the worst case, so kernels need no bounds checks. Nibble planes hold one
// nibble per byte until pack.
enum { MASK, COORD_X, COORD_Y, COORD_Z, GREEN, CHROMA, ESCAPES, PLANES };

struct planes {
	uint8_t *start[PLANES], *end[PLANES];
};

struct hcpf_encoder {
	ZSTD_CCtx *zstd;
	int level;
	struct buffer raw, rows, bits, out;
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
	free(e->out.p);
	free(e);
}

static size_t mask_bound(size_t pixels) { return pixels + pixels / 255 + 1; }

// lay_out places the planes consecutively in the encoder's buffer.
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

// pack packs two nibbles per byte, the first in the high half, in place.
static void pack(struct planes *p, int plane)
{
	uint8_t *nibbles = p->start[plane];
	size_t n = p->end[plane] - nibbles, i = 0, out = 0;
	nibbles[n] = 0; // odd n; the plane has room
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

// set_level sets zstd's parameters for residual planes or for records.
static void set_level(struct hcpf_encoder *e, int records)
{
	ZSTD_CCtx_reset(e->zstd, ZSTD_reset_session_and_parameters);
	if (e->level || records) {
		ZSTD_CCtx_setParameter(e->zstd, ZSTD_c_compressionLevel, e->level ? e->level : RECORD_LEVEL);
		return;
	}
	ZSTD_CCtx_setParameter(e->zstd, ZSTD_c_compressionLevel, 1);
	// Residuals are noise, so a match costs more bits than its literals. The longest search step
	// almost disables matching; literals must then be Huffman-coded explicitly. The parameter is
	// experimental: a library without it uses plain level 1.
	if (!ZSTD_isError(ZSTD_CCtx_setParameter(e->zstd, ZSTD_c_literalCompressionMode, ZSTD_lcm_huffman)))
		ZSTD_CCtx_setParameter(e->zstd, ZSTD_c_targetLength, ZSTD_TARGETLENGTH_MAX);
}

// compress writes the planes as one zstd frame. Each plane starts a block, with its own entropy
// tables.
static struct hcpf_result compress(struct hcpf_encoder *e, const struct planes *p, int records)
{
	size_t total = 0;
	int last = 0;
	for (int i = 0; i < PLANES; i++) {
		total += p->end[i] - p->start[i];
		if (p->end[i] > p->start[i])
			last = i;
	}
	// The bound excludes a few bytes for each additional block.
	if (!reserve(&e->out, ZSTD_compressBound(total) + 16 * PLANES))
		return fail(HCPF_NO_MEMORY);
	set_level(e, records);
	size_t r = ZSTD_CCtx_setPledgedSrcSize(e->zstd, total);
	if (ZSTD_isError(r))
		return fail_zstd(r);
	ZSTD_outBuffer out = {e->out.p, e->out.capacity, 0};
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
	return (struct hcpf_result){.data = e->out.p, .length = out.pos, .raw_length = (uint32_t)total};
}

// put_escape writes the remainder of z beyond a nibble, as a base-128 varint.
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

// put_mask_row appends the gaps between the row's mispredicted bits; *gap carries over to the next
// row. The prediction of a bit is its upper neighbour if that differs from the upper neighbour's
// left neighbour, otherwise its left neighbour.
static uint8_t *put_mask_row(uint8_t *out, const uint64_t *here, const uint64_t *above, int width, size_t *gap)
{
	uint64_t carry = above[0] & 1, carry_above = carry;
	size_t from = 0; // first pixel of the row not counted in gap
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
	// Residuals of two nibbles in a byte, 0 for escapes: depth and G, and R−G and B−G.
	uint64_t depth_green[256], chroma[256];
	uint8_t escaped[256]; // 1 where either nibble is an escape
};

struct hcpf_decoder *hcpf_decoder_new(void)
{
	struct hcpf_decoder *d = calloc(1, sizeof *d);
	if (!d)
		return NULL;
	d->zstd = ZSTD_createDCtx();
	if (!d->zstd) {
		free(d);
		return NULL;
	}
	for (uint32_t b = 0; b < 256; b++) {
		int32_t high = b >> 4 == ESCAPE ? 0 : unzigzag(b >> 4), low = (b & 15) == ESCAPE ? 0 : unzigzag(b & 15);
		d->depth_green[b] = PIXEL(high, 0, low, 0);
		d->chroma[b] = PIXEL(0, high, 0, low);
		d->escaped[b] = b >> 4 == ESCAPE || (b & 15) == ESCAPE;
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

// decompress fills dst with exactly raw_length bytes or fails. The source must be a single zstd
// frame.
static struct hcpf_result decompress(struct hcpf_decoder *d, uint8_t *dst, size_t raw_length, const uint8_t *src,
	size_t length)
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

// Escapes being read. bad is set if one is missing or out of range; results are meaningless from
// then on.
struct escapes {
	const uint8_t *at, *end;
	int bad;
};

// take returns the residual of a nibble; most is the largest valid zigzag.
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

// unpack reverses pack: dst[i] is nibble i of src. It may write one extra byte.
static void unpack(uint8_t *restrict dst, const uint8_t *restrict src, size_t n)
{
	for (size_t i = 0; i < packed(n); i++) {
		uint16_t pair = src[i] >> 4 | (src[i] & 15) << 8;
		memcpy(dst + 2 * i, &pair, 2);
	}
}

// unpack_two combines nibbles i of two planes in byte i, high's in the high half.
static void unpack_two(uint8_t *restrict dst, const uint8_t *restrict high, const uint8_t *restrict low, size_t n)
{
	for (size_t i = 0; i < packed(n); i++) {
		uint16_t pair = (high[i] & 0xf0) | low[i] >> 4 | ((high[i] & 15) << 4 | (low[i] & 15)) << 8;
		memcpy(dst + 2 * i, &pair, 2);
	}
}

// take_mask reconstructs the bits of all rows from the gaps and counts them. It returns the number
// of bytes read, or 0 if the gaps do not fit the grid.
static size_t take_mask(uint64_t *rows, int width, int height, const uint8_t *raw, size_t length, size_t *points)
{
	size_t words = words_of(width), pixels = (size_t)width * height, at = 0, pos = 0;
	memset(rows, 0, sizeof(uint64_t) * words * height);
	// Find the mispredicted bits first, then compute the rows.
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
			// The validity is constant between events.
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

#if defined(__SSE2__)
static inline v8 vmin(v8 a, v8 b) { return (v8)_mm_min_epi16((__m128i)a, (__m128i)b); }
static inline v8 vmax(v8 a, v8 b) { return (v8)_mm_max_epi16((__m128i)a, (__m128i)b); }
static inline v8 load_one(const uint64_t *p) { return (v8)_mm_loadl_epi64((const __m128i *)p); }
static inline void store_one(uint64_t *p, v8 v) { _mm_storel_epi64((__m128i *)p, (__m128i)v); }
#else
#if defined(__ARM_NEON)
static inline v8 vmin(v8 a, v8 b) { return (v8)vminq_s16((int16x8_t)a, (int16x8_t)b); }
static inline v8 vmax(v8 a, v8 b) { return (v8)vmaxq_s16((int16x8_t)a, (int16x8_t)b); }
#else
static inline v8 vmin(v8 a, v8 b) { v8 less = (v8)((s8)a < (s8)b); return (a & less) | (b & ~less); }
static inline v8 vmax(v8 a, v8 b) { v8 less = (v8)((s8)a < (s8)b); return (b & less) | (a & ~less); }
#endif
static inline v8 load_one(const uint64_t *p)
{
	uint64_t two[2] = {*p, 0};
	v8 v;
	memcpy(&v, two, sizeof v);
	return v;
}
static inline void store_one(uint64_t *p, v8 v) { memcpy(p, &v, sizeof *p); }
#endif

static inline v8 load_two(const uint64_t *p)
{
	v8 v;
	memcpy(&v, p, sizeof v);
	return v;
}

// clamp_corner returns the term that median-edge prediction subtracts from w + n: nw clamped to w
// and n.
static inline v8 clamp_corner(v8 w, v8 n, v8 nw) { return vmin(vmax(nw, vmin(w, n)), vmax(w, n)); }

// Pixel rows: pixel x is at [x+1], its left neighbour or substitute at [x]; an invalid pixel has
// its predicted value. Room for two rows, a row's residuals and nibbles, and the positions of
// escapes.
static size_t rows_size(int width) { return 4 * sizeof(uint64_t) * ((size_t)width + 4); }

// run_end returns the first pixel from x on whose validity differs from valid (0 or 1), or width.
static inline int run_end(const uint64_t *bits, int x, int width, uint64_t valid)
{
	uint64_t flip = valid ? ~(uint64_t)0 : 0;
	for (int from = x % 64; x < width; x += 64 - from, from = 0) {
		uint64_t w = (bits[x / 64] ^ flip) >> from;
		if (w) {
			x += __builtin_ctzll(w);
			return x < width ? x : width;
		}
	}
	return width;
}

// fill_row fills the row at here with the grid's valid pixels, and with predictions for the others.
static void fill_row(uint64_t *here, const uint64_t *above, const uint64_t *bits, const uint16_t *depth,
	const uint8_t *color, int width, int step)
{
	here[0] = above[0];
	for (int x = 0, end; x < width;) {
		end = run_end(bits, x, width, 0);
		v8 w = load_one(here + x), nw = load_one(above + x);
		for (; x < end; x++) {
			v8 n = load_one(above + x + 1);
			w = w + n - clamp_corner(w, n, nw);
			nw = n;
			store_one(here + x + 1, w);
		}
		end = run_end(bits, x, width, 1);
		for (; x < end; x++) {
			const uint8_t *c = color + 3 * (size_t)x * step;
			here[x + 1] = PIXEL(depth[(size_t)x * step], c[0] - c[1], c[1], c[2] - c[1]) ^ FLIPPED;
		}
	}
}

// predict_row computes the row's zigzag residuals and their nibbles, one per byte.
static void predict_row(uint64_t *restrict zigzags, uint32_t *restrict nibbles, const uint64_t *here,
	const uint64_t *above, int width)
{
	const v8 green = {0, 0, 0xffff, 0, 0, 0, 0xffff, 0}, most = {15, 15, 15, 15, 15, 15, 15, 15};
	for (int x = 0; x < width; x += 2) {
		v8 w = load_two(here + x), n = load_two(above + x + 1), nw = load_two(above + x);
		v8 r = load_two(here + x + 1) - (w + n - clamp_corner(w, n, nw));
		v8 z = (r + r) ^ (v8)((s8)r >> 15);
		z = (z & ~green) | (z >> 8 & green); // r of G is a multiple of 256
		memcpy(zigzags + x, &z, sizeof z);
#if defined(__SSE2__)
		__m128i least = _mm_sub_epi16((__m128i)z, _mm_subs_epu16((__m128i)z, (__m128i)most));
		_mm_storel_epi64((__m128i *)(nibbles + x), _mm_packus_epi16(least, least));
#else
		v8 over = (v8)(z > most), least = (z & ~over) | (most & over);
		uint8_t b[8];
		for (int k = 0; k < 8; k++)
			b[k] = (uint8_t)least[k];
		memcpy(nibbles + x, b, 8);
#endif
	}
}

// put_escapes writes a pixel's escapes. Which lanes escape is hard to predict, so it writes a byte
// for each lane and advances only past escapes.
static inline uint8_t *put_escapes(uint8_t *out, uint64_t z)
{
	if (UNLIKELY(z & 0xff80ff80ff80ff80)) {
		for (int k = 0; k < 64; k += 16)
			if ((z >> k & 0xffff) >= ESCAPE)
				out = put_escape(out, z >> k & 0xffff);
		return out;
	}
	for (int k = 0; k < 64; k += 16) {
		uint32_t lane = z >> k & 0xffff;
		*out = (uint8_t)(lane - ESCAPE);
		out += lane >= ESCAPE;
	}
	return out;
}

// put_row writes the residuals of the row's valid pixels. It first lists pixels with escapes, as a
// branch per pixel would be mispredicted.
static void put_row(struct planes *p, const uint64_t *zigzags, const uint32_t *nibbles, const uint64_t *bits, int width,
	uint16_t *escaped)
{
	uint8_t *coord = p->end[COORD_X], *green = p->end[GREEN], *chroma = p->end[CHROMA], *escapes = p->end[ESCAPES];
	size_t n = 0;
	for (int x = run_end(bits, 0, width, 0), end; x < width; x = run_end(bits, end, width, 0)) {
		end = run_end(bits, x, width, 1);
		for (; x < end; x++) {
			uint32_t b = nibbles[x];
			*coord++ = (uint8_t)b;
			*green++ = (uint8_t)(b >> 16);
			*chroma++ = (uint8_t)((b >> 4 & 0xf0) | b >> 24);
			escaped[n] = (uint16_t)x;
			n += ((b + 0x01010101) & 0x10101010) != 0;
		}
	}
	for (size_t i = 0; i < n; i++)
		escapes = put_escapes(escapes, zigzags[escaped[i]]);
	p->end[COORD_X] = coord;
	p->end[GREEN] = green;
	p->end[CHROMA] = chroma;
	p->end[ESCAPES] = escapes;
}

// encode_rows writes the mask and the residuals of the grid's valid pixels.
static void encode_rows(struct planes *p, const struct hcpf_frame *g, int width, int height, uint64_t *rows,
	uint64_t *bits)
{
	size_t gap = 0, stride = (size_t)width + 4;
	uint64_t *above = rows, *here = rows + stride, *zigzags = here + stride, *above_bits = bits;
	uint32_t *nibbles = (uint32_t *)(zigzags + stride);
	uint16_t *escaped = (uint16_t *)(nibbles + stride);
	bits += words_of(width);
	for (size_t x = 0; x < 2 * stride; x++)
		rows[x] = FLIPPED;
	for (int y = 0; width > 0 && y < height; y++) {
		size_t first = (size_t)(y * g->step + g->dy) * g->width + g->dx;
		valid_row(bits, g->depth + first, width, g->step);
		p->end[MASK] = put_mask_row(p->end[MASK], bits, above_bits, width, &gap);
		above[0] = above[1];
		if (g->step == 1)
			fill_row(here, above, bits, g->depth + first, g->color + 3 * first, width, 1);
		else
			fill_row(here, above, bits, g->depth + first, g->color + 3 * first, width, g->step);
		predict_row(zigzags, nibbles, here, above, width);
		put_row(p, zigzags, nibbles, bits, width, escaped);
		uint64_t *v = above;
		above = here;
		here = v;
		v = above_bits;
		above_bits = bits;
		bits = v;
	}
	p->end[MASK] = put_gap(p->end[MASK], gap);
}

// take_pixel returns the residuals of a pixel with escapes.
static inline uint64_t take_pixel(struct escapes *e, uint32_t depth_green, uint32_t chroma)
{
	int32_t depth = take(e, depth_green >> 4, MAX_COORD), rg = take(e, chroma >> 4, MAX_CHROMA);
	int32_t green = take(e, depth_green & 15, MAX_GREEN), bg = take(e, chroma & 15, MAX_CHROMA);
	return PIXEL(depth, rg, green, bg);
}

// take_row returns the residuals of a row's n valid pixels. It first lists pixels with escapes, as
// a branch per pixel would be mispredicted.
static void take_row(const struct hcpf_decoder *d, struct escapes *e, const uint8_t *depth_green, const uint8_t *chroma,
	size_t n, uint64_t *residuals, uint16_t *escaped)
{
	size_t m = 0;
	for (size_t i = 0; i < n; i++) {
		uint32_t dg = depth_green[i], c = chroma[i];
		residuals[i] = d->depth_green[dg] | d->chroma[c]; // in separate lanes
		escaped[m] = (uint16_t)i;
		m += d->escaped[dg] | d->escaped[c];
	}
	for (size_t i = 0; i < m; i++)
		residuals[escaped[i]] = take_pixel(e, depth_green[escaped[i]], chroma[escaped[i]]);
}

// decode_rows writes the valid pixels of the grid. It stops at invalid escapes and leaves bad set.
static inline __attribute__((always_inline)) void decode_rows(struct hcpf_decoder *d, const uint8_t *chroma,
	struct escapes *escapes, const struct hcpf_frame *g, int width, int height, size_t step)
{
	size_t stride = (size_t)width + 4, words = words_of(width);
	uint64_t *above = (uint64_t *)d->rows.p, *here = above + stride, *residuals = here + stride;
	uint16_t *escaped = (uint16_t *)(residuals + stride);
	const uint64_t *bits = (const uint64_t *)d->bits.p;
	const uint8_t *depth_green = d->nibbles.p;
	for (size_t x = 0; x < 2 * stride; x++)
		above[x] = FLIPPED;
	for (int y = 0; width > 0 && y < height; y++, bits += words) {
		size_t first = (size_t)(y * step + g->dy) * g->width + g->dx, n = 0;
		for (size_t i = 0; i < words; i++)
			n += __builtin_popcountll(bits[i]);
		take_row(d, escapes, depth_green, chroma, n, residuals, escaped);
		if (escapes->bad)
			return;
		depth_green += n;
		chroma += n;
		uint16_t *depth = g->depth + first;
		uint8_t *color = g->color + 3 * first;
		const uint64_t *r = residuals;
		here[0] = above[0] = above[1];
		v8 w = load_one(here), nw = w;
		for (int x = 0, end; x < width;) {
			end = run_end(bits, x, width, 0);
			for (; x < end; x++) {
				v8 north = load_one(above + x + 1);
				w = w + north - clamp_corner(w, north, nw);
				nw = north;
				store_one(here + x + 1, w);
			}
			end = run_end(bits, x, width, 1);
			for (; x < end; x++) {
				v8 north = load_one(above + x + 1);
				w = w + (north + load_one(r++)) - clamp_corner(w, north, nw);
				nw = north;
				uint64_t v;
				store_one(&v, w);
				here[x + 1] = v;
				v ^= FLIPPED;
				depth[x * step] = (uint16_t)v;
				uint8_t *o = color + 3 * x * step, green = (uint8_t)(v >> 40);
				o[0] = (uint8_t)((v >> 16) + green);
				o[1] = green;
				o[2] = (uint8_t)((v >> 48) + green);
			}
		}
		uint64_t *v = above;
		above = here;
		here = v;
	}
}

static void share_size(const struct hcpf_frame *g, int *width, int *height)
{
	*width = (g->width - g->dx + g->step - 1) / g->step;
	*height = (g->height - g->dy + g->step - 1) / g->step;
}

static struct hcpf_result encode_grid(struct hcpf_encoder *e, const struct hcpf_frame *g)
{
	int width, height;
	share_size(g, &width, &height);
	size_t n = (size_t)width * height, words = words_of(width);
	struct planes p;
	const size_t room[PLANES] = {
		[MASK] = mask_bound(n), [COORD_X] = n + 1, [GREEN] = n + 1, [CHROMA] = n, [ESCAPES] = 9 * n,
	};
	if (!lay_out(e, &p, room) || !reserve(&e->rows, rows_size(width)) || !reserve(&e->bits,
		2 * sizeof(uint64_t) * words))
		return fail(HCPF_NO_MEMORY);
	memset(e->bits.p, 0, sizeof(uint64_t) * words);
	encode_rows(&p, g, width, height, (uint64_t *)e->rows.p, (uint64_t *)e->bits.p);
	size_t points = p.end[CHROMA] - p.start[CHROMA];
	pack(&p, COORD_X);
	pack(&p, GREEN);
	struct hcpf_result r = compress(e, &p, 0);
	r.points = (uint32_t)points;
	return r;
}

static struct hcpf_result decode_grid(struct hcpf_decoder *d, const struct hcpf_frame *g, uint32_t points,
	uint32_t raw_length, const uint8_t *src, size_t length)
{
	int width, height;
	share_size(g, &width, &height);
	size_t n = points, valid;
	if (!reserve(&d->raw, raw_length) || !reserve(&d->nibbles, n + 1) || !reserve(&d->rows, rows_size(width)) ||
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
	if (g->step == 1)
		decode_rows(d, chroma, &escapes, g, width, height, 1);
	else
		decode_rows(d, chroma, &escapes, g, width, height, g->step);
	if (escapes.bad || escapes.at != end)
		return fail(HCPF_BAD_PLANES);
	return (struct hcpf_result){.points = points};
}

static size_t share_count(const struct hcpf_frame *c)
{
	return c->points > c->index ? (c->points - c->index + c->stride - 1) / c->stride : 0;
}

static void put_records(struct planes *p, const struct hcpf_frame *c)
{
	uint8_t *out = p->end[COORD_X];
	for (size_t i = c->index; i < c->points; i += c->stride, out += 9) {
		for (int k = 0; k < 3; k++) {
			uint16_t v = (uint16_t)c->xyz[3 * i + k];
			out[2 * k] = (uint8_t)v;
			out[2 * k + 1] = (uint8_t)(v >> 8);
		}
		memcpy(out + 6, c->rgb + 3 * i, 3);
	}
	p->end[COORD_X] = out;
}

static void take_records(const struct hcpf_frame *c, const uint8_t *raw)
{
	for (size_t i = 0; i < c->points; i++, raw += 9) {
		for (int k = 0; k < 3; k++)
			c->xyz[3 * i + k] = (int16_t)(raw[2 * k] | raw[2 * k + 1] << 8);
		memcpy(c->rgb + 3 * i, raw + 6, 3);
	}
}

static void put_deltas(struct planes *p, const struct hcpf_frame *c)
{
	uint8_t *x = p->end[COORD_X], *y = p->end[COORD_Y], *z = p->end[COORD_Z];
	uint8_t *green = p->end[GREEN], *chroma = p->end[CHROMA], *escapes = p->end[ESCAPES];
	int32_t last[6] = {0};
	for (size_t i = c->index; i < c->points; i += c->stride) {
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

static struct hcpf_result encode_deltas(struct hcpf_encoder *e, const struct hcpf_frame *c)
{
	size_t n = share_count(c);
	struct planes p;
	const size_t room[PLANES] = {
		[COORD_X] = n + 1, [COORD_Y] = n + 1, [COORD_Z] = n + 1, [GREEN] = n + 1, [CHROMA] = n, [ESCAPES] = 15 * n,
	};
	if (!lay_out(e, &p, room))
		return fail(HCPF_NO_MEMORY);
	put_deltas(&p, c);
	struct hcpf_result r = compress(e, &p, 0);
	r.points = (uint32_t)n;
	return r;
}

static struct hcpf_result encode_records(struct hcpf_encoder *e, const struct hcpf_frame *c)
{
	size_t n = share_count(c);
	struct planes p;
	const size_t room[PLANES] = {[COORD_X] = 9 * n};
	if (!lay_out(e, &p, room))
		return fail(HCPF_NO_MEMORY);
	put_records(&p, c);
	struct hcpf_result r = compress(e, &p, 1);
	r.points = (uint32_t)n;
	return r;
}

static struct hcpf_result decode_records(struct hcpf_decoder *d, const struct hcpf_frame *c, uint32_t points,
	uint32_t raw_length, const uint8_t *src, size_t length)
{
	if (!reserve(&d->raw, raw_length))
		return fail(HCPF_NO_MEMORY);
	struct hcpf_result r = decompress(d, d->raw.p, raw_length, src, length);
	if (r.error)
		return r;
	r.points = points;
	take_records(c, d->raw.p);
	return r;
}

static struct hcpf_result decode_deltas(struct hcpf_decoder *d, const struct hcpf_frame *c, uint32_t points,
	uint32_t raw_length, const uint8_t *src, size_t length)
{
	size_t n = points;
	if (!reserve(&d->raw, raw_length) || !reserve(&d->nibbles, 4 * (n + 1)))
		return fail(HCPF_NO_MEMORY);
	const uint8_t *raw = d->raw.p, *end = raw + raw_length;
	struct hcpf_result r = decompress(d, d->raw.p, raw_length, src, length);
	if (r.error)
		return r;
	r.points = points;
	const uint8_t *nibbles[4];
	for (int k = 0; k < 4; k++) {
		uint8_t *plane = d->nibbles.p + k * (n + 1);
		unpack(plane, raw + k * packed(n), n);
		nibbles[k] = plane;
	}
	const uint8_t *chroma = raw + 4 * packed(n);
	struct escapes escapes = {chroma + n, end, 0};
	uint32_t v[6] = {0}; // only the low 16 or 8 bits matter
	for (size_t i = 0; i < n; i++) {
		for (int k = 0; k < 3; k++) {
			v[k] += (uint32_t)take(&escapes, nibbles[k][i], MAX_COORD);
			c->xyz[3 * i + k] = (int16_t)v[k];
		}
		v[3] += (uint32_t)take(&escapes, chroma[i] >> 4, MAX_CHROMA);
		v[4] += (uint32_t)take(&escapes, nibbles[3][i], MAX_GREEN);
		v[5] += (uint32_t)take(&escapes, chroma[i] & 15, MAX_CHROMA);
		c->rgb[3 * i] = (uint8_t)(v[3] + v[4]);
		c->rgb[3 * i + 1] = (uint8_t)v[4];
		c->rgb[3 * i + 2] = (uint8_t)(v[5] + v[4]);
	}
	if (escapes.bad || escapes.at != end)
		return fail(HCPF_BAD_PLANES);
	return r;
}

// Layouts by number in the header, as in layout.go.
static const struct {
	struct hcpf_result (*encode)(struct hcpf_encoder *e, const struct hcpf_frame *f);
	struct hcpf_result (*decode)(struct hcpf_decoder *d, const struct hcpf_frame *f, uint32_t points,
		uint32_t raw_length, const uint8_t *src, size_t length);
} layouts[] = {
	[1] = {encode_grid, decode_grid},
	[2] = {encode_deltas, decode_deltas},
	[3] = {encode_records, decode_records},
};

struct hcpf_result hcpf_encode(struct hcpf_encoder *e, struct hcpf_frame f)
{
	return layouts[f.layout].encode(e, &f);
}

struct hcpf_result hcpf_decode(struct hcpf_decoder *d, struct hcpf_frame f, uint32_t points, uint32_t raw_length,
	const uint8_t *src, size_t length)
{
	return layouts[f.layout].decode(d, &f, points, raw_length, src, length);
}
