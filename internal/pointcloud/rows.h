// The kernels that walk a grid row by row. kernels.c includes this file once for
// every instruction set: VARIANT(f) names the functions, TARGET is their attribute.

#define INLINE TARGET static inline __attribute__((always_inline))

INLINE v4 VARIANT(median_edge)(v4 w, v4 n, v4 nw)
{
	v4 gradient = w + (n - nw);
#ifdef HAVE_AVX2
	__m128i lo = _mm_min_epi32((__m128i)w, (__m128i)n), hi = _mm_max_epi32((__m128i)w, (__m128i)n);
	return (v4)_mm_max_epi32(lo, _mm_min_epi32(hi, (__m128i)gradient));
#else
	v4 less = w < n, lo = (w & less) | (n & ~less), hi = (n & less) | (w & ~less);
	v4 above = gradient > lo, below = gradient < hi;
	return (above & below & gradient) | (~above & lo) | (above & ~below & hi);
#endif
}

INLINE v4 VARIANT(clamp)(v4 v, v4 most)
{
#ifdef HAVE_AVX2
	return (v4)_mm_min_epi32((__m128i)v, (__m128i)most);
#else
	v4 less = v < most;
	return (v & less) | (most & ~less);
#endif
}

// low_bytes packs the low byte of each lane.
INLINE uint32_t VARIANT(low_bytes)(v4 v)
{
#ifdef HAVE_AVX2
	return (uint32_t)_mm_cvtsi128_si32(_mm_shuffle_epi8((__m128i)v, _mm_set1_epi32(0x0c080400)));
#else
	return (v[0] & 0xff) | (v[1] & 0xff) << 8 | (v[2] & 0xff) << 16 | (uint32_t)v[3] << 24;
#endif
}

// Rows of pixels for the predictors: pixel x stands at [x+1], its left neighbour or
// stand-in at [x]. An invalid pixel has the value it was predicted to have.

// encode_row makes the row here from the one above and writes the residuals of its
// valid pixels.
INLINE void VARIANT(encode_row)(struct planes *p, const v4 *above, v4 *here, const uint64_t *bits, const uint16_t *depth, const uint8_t *color, int width, int step)
{
	uint8_t *coord = p->end[COORD_X], *green = p->end[GREEN], *chroma = p->end[CHROMA];
	const v4 half = {1 << 15, 0, 1 << 7, 0}, wrap = {0xffff, -1, 0xff, -1};
	const v4 most = {ESCAPE, NIBBLE, 0xff, NIBBLE};
	v4 w = here[0] = above[0];
	for (int x = 0; x < width; x++) {
		v4 pred = VARIANT(median_edge)(w, above[x + 1], above[x]);
		if (bits[x / 64] >> (x % 64) & 1) {
			const uint8_t *c = color + 3 * (size_t)x * step;
			int32_t g = c[1];
			w = (v4){depth[(size_t)x * step], c[0], g, c[2]} - (v4){0, g, 0, g};
			v4 r = ((w - pred + half) & wrap) - half; // depth mod 2¹⁶, green mod 2⁸
			v4 z = (r + r) ^ (r >> 31);
			uint32_t b = VARIANT(low_bytes)(VARIANT(clamp)(z, most)), q = (b >> 4 & 0xf0) | b >> 24;
			*coord++ = (uint8_t)b;
			*green++ = (uint8_t)(b >> 16);
			*chroma++ = (uint8_t)q;
			if (__builtin_expect((uint8_t)b == ESCAPE, 0))
				put_coord_escape(p, z[0]);
			if (__builtin_expect(chroma_escapes(q), 0)) {
				put_chroma_escape(p, z[1]);
				put_chroma_escape(p, z[3]);
			}
		} else {
			w = pred;
		}
		here[x + 1] = w;
	}
	p->end[COORD_X] = coord;
	p->end[GREEN] = green;
	p->end[CHROMA] = chroma;
}

INLINE void VARIANT(encode_steps)(const struct row_encoding *r, int step)
{
	int width = r->width;
	size_t words = words_of(width), gap = 0;
	v4 *above = r->rows, *here = above + width + 1;
	uint64_t *above_bits = r->bits, *bits = above_bits + words;
	for (int y = 0; width > 0 && y < r->height; y++) {
		size_t first = (size_t)(y * step + r->grid.dy) * r->grid.width + r->grid.dx;
		valid_row(bits, r->grid.depth + first, width, step);
		put_mask_row(r->planes, bits, above_bits, width, &gap);
		above[0] = above[1];
		VARIANT(encode_row)(r->planes, above, here, bits, r->grid.depth + first, r->grid.color + 3 * first, width, step);
		v4 *v = above;
		above = here;
		here = v;
		uint64_t *b = above_bits;
		above_bits = bits;
		bits = b;
	}
	for (; gap >= 255; gap -= 255)
		*r->planes->end[MASK]++ = 255;
	*r->planes->end[MASK]++ = (uint8_t)gap;
}

TARGET static void VARIANT(encode_rows)(const struct row_encoding *r)
{
	r->grid.step == 1 ? VARIANT(encode_steps)(r, 1) : VARIANT(encode_steps)(r, r->grid.step);
}

INLINE void VARIANT(decode_steps)(const struct row_decoding *r, int step)
{
	struct source s = *r->source;
	const struct residuals *t = r->residuals;
	const v4 wrap = {0xffff, -1, 0xff, -1}, green_of = {0, -1, 0, -1};
	int width = r->width;
	size_t words = words_of(width);
	const uint64_t *bits = r->bits;
	const uint8_t *coord = s.coord[0];
	v4 *above = r->rows, *here = above + width + 1;
	for (int y = 0; width > 0 && y < r->height; y++, bits += words) {
		size_t first = (size_t)(y * step + r->grid.dy) * r->grid.width + r->grid.dx;
		uint16_t *depth = r->grid.depth + first;
		uint8_t *color = r->grid.color + 3 * first;
		v4 w = here[0] = above[0] = above[1];
		for (int x = 0; x < width; x++) {
			w = VARIANT(median_edge)(w, above[x + 1], above[x]);
			if (bits[x / 64] >> (x % 64) & 1) {
				uint32_t z = *coord++, q = *s.chroma++;
				v4 v = t->depth[z] + t->green[*s.green++] + t->chroma[q];
				if (__builtin_expect(z == ESCAPE, 0))
					v[0] = unzigzag(take_coord_escape(&s));
				if (__builtin_expect(chroma_escapes(q), 0)) {
					v[1] = take_chroma(&s, q >> 4, r->bad);
					v[3] = take_chroma(&s, q & NIBBLE, r->bad);
				}
				w = (w + v) & wrap;
				depth[(size_t)x * step] = (uint16_t)w[0];
				uint32_t rgb = VARIANT(low_bytes)(w + ((v4){w[2], w[2], w[2], w[2]} & green_of)) >> 8;
				uint8_t *o = color + 3 * (size_t)x * step;
				o[0] = (uint8_t)rgb;
				o[1] = (uint8_t)(rgb >> 8);
				o[2] = (uint8_t)(rgb >> 16);
			}
			here[x + 1] = w;
		}
		if (*r->bad)
			return;
		v4 *v = above;
		above = here;
		here = v;
	}
}

TARGET static void VARIANT(decode_rows)(const struct row_decoding *r)
{
	r->grid.step == 1 ? VARIANT(decode_steps)(r, 1) : VARIANT(decode_steps)(r, r->grid.step);
}

#undef INLINE
