//go:build cgo

#define ZSTD_STATIC_LINKING_ONLY // ZSTD_c_literalCompressionMode

#include "kernels.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif

enum { RECORD_LEVEL = 2 }; // LiveScan3D's

enum { ESCAPE = 255, NIBBLE = 15, MAX_ZIGZAG_CHROMA = 1020 };

// A pixel as the predictor sees it: depth, R−G, G, B−G.
typedef int32_t v4 __attribute__((vector_size(16)));

static inline uint32_t zigzag(int32_t v) { return (uint32_t)v << 1 ^ (uint32_t)(v >> 31); }
static inline int32_t unzigzag(uint32_t z) { return (int32_t)(z >> 1) ^ -(int32_t)(z & 1); }
// chroma_escapes tells whether either nibble of a chroma byte is an escape.
static inline int chroma_escapes(uint32_t c) { return (c >= NIBBLE << 4) | ((c & NIBBLE) == NIBBLE); }
static inline size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

static int grow(void **p, size_t *capacity, size_t need)
{
	if (need <= *capacity)
		return 1;
	void *q = realloc(*p, need);
	if (!q)
		return 0;
	*p = q;
	*capacity = need;
	return 1;
}

struct buffer {
	void *p;
	size_t capacity;
};

static int reserve(struct buffer *b, size_t need) { return grow(&b->p, &b->capacity, need); }

// Planes being written: each has room for its worst case, so that the kernels
// need no bounds.
enum { MASK, COORD_X, COORD_Y, COORD_Z, GREEN, CHROMA, COORD_LO, COORD_HI, CHROMA_LO, CHROMA_HI, PLANES };

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
	e->zstd = ZSTD_createCCtx();
	if (!e->zstd) {
		free(e);
		return NULL;
	}
	e->level = level;
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

size_t hcpf_grid_raw_bound(size_t pixels) { return pixels + pixels / 255 + 1 + 9 * pixels; }
size_t hcpf_points_raw_bound(size_t points) { return 15 * points; }
// Every plane starts a block of its own.
size_t hcpf_compress_bound(size_t raw) { return ZSTD_compressBound(raw) + 16 * PLANES; }

// lay_out places the planes one after the other in the encoder's buffer.
static int lay_out(struct hcpf_encoder *e, struct planes *p, const size_t room[PLANES])
{
	size_t total = 0;
	for (int i = 0; i < PLANES; i++)
		total += room[i];
	if (!reserve(&e->raw, total + 16))
		return 0;
	uint8_t *at = e->raw.p;
	for (int i = 0; i < PLANES; i++) {
		p->start[i] = p->end[i] = at;
		at += room[i];
	}
	return 1;
}

static struct hcpf_result fail(int error) { return (struct hcpf_result){.error = error}; }
static struct hcpf_result fail_zstd(size_t code)
{
	return (struct hcpf_result){.error = HCPF_BAD_ZSTD, .zstd = ZSTD_getErrorName(code)};
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

static inline void put_coord_escape(struct planes *p, uint32_t z)
{
	*p->end[COORD_LO]++ = (uint8_t)z;
	*p->end[COORD_HI]++ = (uint8_t)(z >> 8);
}

static inline void put_coord(struct planes *p, int plane, int32_t residual)
{
	uint32_t z = zigzag((int16_t)residual);
	*p->end[plane]++ = z < ESCAPE ? z : ESCAPE;
	if (__builtin_expect(z >= ESCAPE, 0))
		put_coord_escape(p, z);
}

static inline void put_chroma_escape(struct planes *p, uint32_t z)
{
	if (z >= NIBBLE) {
		*p->end[CHROMA_LO]++ = (uint8_t)(z - NIBBLE);
		*p->end[CHROMA_HI]++ = (uint8_t)((z - NIBBLE) >> 8);
	}
}

static inline void put_color(struct planes *p, int32_t rg, int32_t g, int32_t bg)
{
	*p->end[GREEN]++ = (uint8_t)zigzag((int8_t)g);
	uint32_t zr = zigzag(rg), zb = zigzag(bg);
	if (__builtin_expect((zr >= NIBBLE) | (zb >= NIBBLE), 0)) {
		put_chroma_escape(p, zr);
		put_chroma_escape(p, zb);
		zr = zr < NIBBLE ? zr : NIBBLE;
		zb = zb < NIBBLE ? zb : NIBBLE;
	}
	*p->end[CHROMA]++ = (uint8_t)(zr << 4 | zb);
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

// put_mask_row appends the gaps between the row's mispredicted bits. A bit is
// predicted by the one above where that differs from its left neighbour, and by
// the bit to the left where it does not.
static void put_mask_row(struct planes *p, const uint64_t *here, const uint64_t *above, int width, size_t *gap)
{
	uint8_t *out = p->end[MASK];
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
			size_t g = *gap + x - from;
			for (; g >= 255; g -= 255)
				*out++ = 255;
			*out++ = (uint8_t)g;
			*gap = 0;
			from = x + 1;
		}
	}
	*gap += width - from;
	p->end[MASK] = out;
}

struct hcpf_result hcpf_encode_points(struct hcpf_encoder *e, struct hcpf_points c, int interleaved, uint8_t *dst, size_t capacity)
{
	size_t n = c.count > c.index ? (c.count - c.index + c.step - 1) / c.step : 0;
	struct planes p;
	if (interleaved) {
		const size_t room[PLANES] = {[COORD_X] = 9 * n};
		if (!lay_out(e, &p, room))
			return fail(HCPF_NO_MEMORY);
		uint8_t *out = p.end[COORD_X];
		for (size_t i = c.index; i < c.count; i += c.step, out += 9) {
			for (int k = 0; k < 3; k++) {
				out[2 * k] = (uint8_t)c.xyz[3 * i + k];
				out[2 * k + 1] = (uint8_t)((uint16_t)c.xyz[3 * i + k] >> 8);
			}
			memcpy(out + 6, c.rgb + 3 * i, 3);
		}
		p.end[COORD_X] = out;
	} else {
		const size_t room[PLANES] = {
			[COORD_X] = n, [COORD_Y] = n, [COORD_Z] = n, [GREEN] = n, [CHROMA] = n,
			[COORD_LO] = 3 * n, [COORD_HI] = 3 * n, [CHROMA_LO] = 2 * n, [CHROMA_HI] = 2 * n,
		};
		if (!lay_out(e, &p, room))
			return fail(HCPF_NO_MEMORY);
		for (int axis = 0; axis < 3; axis++) {
			int32_t last = 0;
			for (size_t i = c.index; i < c.count; i += c.step) {
				int32_t v = c.xyz[3 * i + axis];
				put_coord(&p, COORD_X + axis, v - last);
				last = v;
			}
		}
		int32_t rg = 0, g = 0, bg = 0;
		for (size_t i = c.index; i < c.count; i += c.step) {
			const uint8_t *v = c.rgb + 3 * i;
			put_color(&p, v[0] - v[1] - rg, v[1] - g, v[2] - v[1] - bg);
			rg = v[0] - v[1], g = v[1], bg = v[2] - v[1];
		}
	}
	struct hcpf_result r = compress(e, &p, interleaved, dst, capacity);
	r.points = (uint32_t)n;
	return r;
}

// Residuals of every byte of a plane in their lanes, 0 where they escape.
struct residuals {
	v4 depth[256], green[256], chroma[256];
};

static void fill_residuals(struct residuals *t)
{
	for (uint32_t z = 0; z < 256; z++) {
		uint32_t rg = z >> 4, bg = z & NIBBLE;
		t->depth[z] = (v4){z == ESCAPE ? 0 : unzigzag(z)};
		t->green[z] = (v4){0, 0, unzigzag(z)};
		t->chroma[z] = (v4){0, rg == NIBBLE ? 0 : unzigzag(rg), 0, bg == NIBBLE ? 0 : unzigzag(bg)};
	}
}

struct hcpf_decoder {
	ZSTD_DCtx *zstd;
	struct buffer raw, rows, bits;
	struct residuals residuals;
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
	fill_residuals(&d->residuals);
	return d;
}

void hcpf_decoder_free(struct hcpf_decoder *d)
{
	if (!d)
		return;
	ZSTD_freeDCtx(d->zstd);
	free(d->raw.p);
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

// Planes being read; split has checked that nothing reads past its plane.
struct source {
	const uint8_t *coord[3], *green, *chroma, *coord_lo, *coord_hi, *chroma_lo, *chroma_hi;
};

static int split(struct source *s, const uint8_t *raw, size_t length, size_t points, int coords)
{
	if (length < (coords + 2) * points)
		return 0;
	size_t coord_escapes = 0, chroma_escapes = 0;
	for (int i = 0; i < coords; i++)
		s->coord[i] = raw + i * points;
	for (size_t i = 0; i < coords * points; i++)
		coord_escapes += raw[i] == ESCAPE;
	s->green = raw + coords * points;
	s->chroma = s->green + points;
	for (size_t i = 0; i < points; i++)
		chroma_escapes += (s->chroma[i] >= NIBBLE << 4) + ((s->chroma[i] & NIBBLE) == NIBBLE);
	s->coord_lo = s->chroma + points;
	s->coord_hi = s->coord_lo + coord_escapes;
	s->chroma_lo = s->coord_hi + coord_escapes;
	s->chroma_hi = s->chroma_lo + chroma_escapes;
	return length == (coords + 2) * points + 2 * coord_escapes + 2 * chroma_escapes;
}

static inline uint32_t take_coord_escape(struct source *s)
{
	uint32_t lo = *s->coord_lo++;
	return lo | (uint32_t)*s->coord_hi++ << 8;
}

static inline int32_t take_coord(struct source *s, int plane)
{
	uint32_t z = *s->coord[plane]++;
	return unzigzag(__builtin_expect(z == ESCAPE, 0) ? take_coord_escape(s) : z);
}

// take_chroma reads one residual whose nibble is z; *bad collects what is out of
// range.
static inline int32_t take_chroma(struct source *s, uint32_t z, int *bad)
{
	if (__builtin_expect(z == NIBBLE, 0)) {
		z += *s->chroma_lo++ | (uint32_t)*s->chroma_hi++ << 8;
		*bad |= z > MAX_ZIGZAG_CHROMA;
	}
	return unzigzag(z);
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
	if (pixels == 0)
		return at;
	static const uint64_t none[1];
	for (int y = 0; y < height; y++) {
		uint64_t *here = rows + y * words;
		const uint64_t *above = y ? here - words : none;
		uint64_t carry = above[0] & 1, carry_above = carry;
		for (size_t i = 0; i < words; i++) {
			uint64_t n = y ? above[i] : 0, wrong = here[i];
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

struct row_encoding {
	struct planes *planes;
	struct hcpf_grid grid;
	int width, height;
	v4 *rows;       // 2*(width+1), the first half zero
	uint64_t *bits; // 2*words_of(width), the first half zero
};

struct row_decoding {
	struct source *source;
	const struct residuals *residuals;
	struct hcpf_grid grid;
	int width, height;
	const uint64_t *bits; // words_of(width) per row
	v4 *rows;             // 2*(width+1), the first half zero
	int *bad;
};

// The kernels over rows, once for any processor and once for AVX2.
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

struct hcpf_result hcpf_encode_grid(struct hcpf_encoder *e, struct hcpf_grid g, uint8_t *dst, size_t capacity)
{
	int width = (g.width - g.dx + g.step - 1) / g.step, height = (g.height - g.dy + g.step - 1) / g.step;
	size_t pixels = (size_t)width * height, words = words_of(width);
	struct planes p;
	const size_t room[PLANES] = {
		[MASK] = pixels + pixels / 255 + 1, [COORD_X] = pixels, [GREEN] = pixels, [CHROMA] = pixels,
		[COORD_LO] = pixels, [COORD_HI] = pixels, [CHROMA_LO] = 2 * pixels, [CHROMA_HI] = 2 * pixels,
	};
	if (!lay_out(e, &p, room) || !reserve(&e->rows, 2 * sizeof(v4) * (width + 1)) || !reserve(&e->bits, 2 * sizeof(uint64_t) * (words + 1)))
		return fail(HCPF_NO_MEMORY);

	struct row_encoding rows = {&p, g, width, height, e->rows.p, e->bits.p};
	memset(rows.rows, 0, sizeof(v4) * (width + 1));
	memset(rows.bits, 0, sizeof(uint64_t) * words);
	encode_rows(&rows);
	uint32_t points = (uint32_t)(p.end[GREEN] - p.start[GREEN]);

	struct hcpf_result r = compress(e, &p, 0, dst, capacity);
	r.points = points;
	return r;
}

struct hcpf_result hcpf_decode_grid(struct hcpf_decoder *d, struct hcpf_grid g, uint32_t points, uint32_t raw_length, const uint8_t *src, size_t length)
{
	int width = (g.width - g.dx + g.step - 1) / g.step, height = (g.height - g.dy + g.step - 1) / g.step;
	size_t words = words_of(width);
	if (!reserve(&d->raw, raw_length + 16) || !reserve(&d->rows, 2 * sizeof(v4) * (width + 1)) || !reserve(&d->bits, sizeof(uint64_t) * (words * height + 1)))
		return fail(HCPF_NO_MEMORY);
	const uint8_t *raw = d->raw.p;
	struct hcpf_result r = decompress(d, d->raw.p, raw_length, src, length);
	if (r.error)
		return r;
	size_t valid;
	size_t mask = take_mask(d->bits.p, width, height, raw, raw_length, &valid);
	struct source s;
	if (mask == 0 || valid != points || !split(&s, raw + mask, raw_length - mask, points, 1))
		return fail(HCPF_BAD_PLANES);

	int bad = 0;
	struct row_decoding rows = {&s, &d->residuals, g, width, height, d->bits.p, d->rows.p, &bad};
	memset(rows.rows, 0, sizeof(v4) * (width + 1));
	decode_rows(&rows);
	if (bad)
		return fail(HCPF_BAD_PLANES);
	return (struct hcpf_result){.points = points};
}

struct hcpf_result hcpf_decode_points(struct hcpf_decoder *d, struct hcpf_points c, int interleaved, uint32_t raw_length, const uint8_t *src, size_t length)
{
	if (!reserve(&d->raw, raw_length + 16))
		return fail(HCPF_NO_MEMORY);
	const uint8_t *raw = d->raw.p;
	struct hcpf_result r = decompress(d, d->raw.p, raw_length, src, length);
	if (r.error)
		return r;
	size_t n = c.count;
	if (interleaved) {
		for (size_t i = 0; i < n; i++, raw += 9) {
			for (int k = 0; k < 3; k++)
				c.xyz[3 * i + k] = (int16_t)(raw[2 * k] | raw[2 * k + 1] << 8);
			memcpy(c.rgb + 3 * i, raw + 6, 3);
		}
		return (struct hcpf_result){.points = (uint32_t)n};
	}
	struct source s;
	if (!split(&s, raw, raw_length, n, 3))
		return fail(HCPF_BAD_PLANES);
	for (int axis = 0; axis < 3; axis++) {
		int16_t v = 0;
		for (size_t i = 0; i < n; i++) {
			v = (int16_t)(v + take_coord(&s, axis));
			c.xyz[3 * i + axis] = v;
		}
	}
	uint32_t rg = 0, g = 0, bg = 0; // only their low bytes count
	int bad = 0;
	for (size_t i = 0; i < n; i++) {
		uint32_t z = *s.chroma++;
		rg += take_chroma(&s, z >> 4, &bad);
		bg += take_chroma(&s, z & NIBBLE, &bad);
		g += unzigzag(*s.green++);
		if (bad)
			return fail(HCPF_BAD_PLANES);
		c.rgb[3 * i] = (uint8_t)(rg + g);
		c.rgb[3 * i + 1] = (uint8_t)g;
		c.rgb[3 * i + 2] = (uint8_t)(bg + g);
	}
	return (struct hcpf_result){.points = (uint32_t)n};
}
