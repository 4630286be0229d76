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

// nibbles gives the smaller of each lane and ESCAPE, lane k in bits 8k.
INLINE uint32_t VARIANT(nibbles)(v4 z)
{
#ifdef HAVE_AVX2
	__m128i least = _mm_min_epi32((__m128i)z, _mm_set1_epi32(ESCAPE));
	return (uint32_t)_mm_cvtsi128_si32(_mm_shuffle_epi8(least, _mm_set1_epi32(0x0c080400)));
#else
	uint32_t b = 0;
	for (int k = 0; k < 4; k++)
		b |= (uint32_t)(z[k] < ESCAPE ? z[k] : ESCAPE) << 8 * k;
	return b;
#endif
}

// encode_row makes the row here from the one above and writes the residuals of its
// valid pixels.
INLINE void VARIANT(encode_row)(struct planes *p, const v4 *above, v4 *here, const uint64_t *bits, const uint16_t *depth, const uint8_t *color, int width, int step)
{
	uint8_t *coord = p->end[COORD_X], *green = p->end[GREEN], *chroma = p->end[CHROMA], *escapes = p->end[ESCAPES];
	const v4 half = {1 << 15, 0, 1 << 7, 0}, wrap = {0xffff, -1, 0xff, -1};
	v4 w = here[0] = above[0];
	for (int x = 0; x < width; x++) {
		v4 pred = VARIANT(median_edge)(w, above[x + 1], above[x]);
		w = pred;
		if (bits[x / 64] >> (x % 64) & 1) {
			const uint8_t *c = color + 3 * (size_t)x * step;
			int32_t g = c[1];
			w = (v4){depth[(size_t)x * step], c[0], g, c[2]} - (v4){0, g, 0, g};
			v4 r = ((w - pred + half) & wrap) - half; // depth mod 2¹⁶, G mod 2⁸
			v4 z = (r + r) ^ (r >> 31);
			uint32_t b = VARIANT(nibbles)(z);
			*coord++ = b & 15;
			*green++ = b >> 16 & 15;
			*chroma++ = (uint8_t)((b >> 4 & 0xf0) | b >> 24);
			if (UNLIKELY((b + 0x01010101) & 0x10101010))
				for (int k = 0; k < 4; k++)
					if (z[k] >= ESCAPE)
						escapes = put_escape(escapes, z[k]);
		}
		here[x + 1] = w;
	}
	p->end[COORD_X] = coord;
	p->end[GREEN] = green;
	p->end[CHROMA] = chroma;
	p->end[ESCAPES] = escapes;
}

INLINE void VARIANT(encode_steps)(const struct row_encoding *r, int step)
{
	int width = r->width;
	size_t gap = 0;
	uint8_t *mask = r->planes->end[MASK];
	v4 *above = r->rows, *here = above + width + 1;
	uint64_t *above_bits = r->bits, *bits = above_bits + words_of(width);
	for (int y = 0; width > 0 && y < r->height; y++) {
		size_t first = (size_t)(y * step + r->grid.dy) * r->grid.width + r->grid.dx;
		valid_row(bits, r->grid.depth + first, width, step);
		mask = put_mask_row(mask, bits, above_bits, width, &gap);
		above[0] = above[1];
		VARIANT(encode_row)(r->planes, above, here, bits, r->grid.depth + first, r->grid.color + 3 * first, width, step);
		v4 *v = above;
		above = here;
		here = v;
		uint64_t *b = above_bits;
		above_bits = bits;
		bits = b;
	}
	r->planes->end[MASK] = put_gap(mask, gap);
}

TARGET static void VARIANT(encode_rows)(const struct row_encoding *r)
{
	r->grid.step == 1 ? VARIANT(encode_steps)(r, 1) : VARIANT(encode_steps)(r, r->grid.step);
}

// put_pixel writes the depth and colour of v.
INLINE void VARIANT(put_pixel)(uint16_t *depth, uint8_t *color, v4 v)
{
	v4 rgb = v + (v4){0, v[2], 0, v[2]};
#ifdef HAVE_AVX2
	uint32_t b = (uint32_t)_mm_cvtsi128_si32(_mm_shuffle_epi8((__m128i)rgb, _mm_set1_epi32(0x000c0804)));
	*depth = (uint16_t)_mm_cvtsi128_si32((__m128i)v);
	memcpy(color, &b, 2);
	color[2] = (uint8_t)(b >> 16);
#else
	*depth = (uint16_t)v[0];
	for (int k = 0; k < 3; k++)
		color[k] = (uint8_t)rgb[k + 1];
#endif
}

INLINE void VARIANT(decode_steps)(const struct row_decoding *r, int step)
{
	const v4 *depth_green = r->tables->depth_green, *chroma = r->tables->chroma;
	const v4 wrap = {0xffff, -1, 0xff, -1};
	const uint8_t *dg_at = r->depth_green, *c_at = r->chroma;
	struct escapes escapes = *r->escapes;
	int width = r->width;
	const uint64_t *bits = r->bits;
	v4 *above = r->rows, *here = above + width + 1;
	for (int y = 0; width > 0 && y < r->height && !escapes.bad; y++, bits += words_of(width)) {
		size_t first = (size_t)(y * step + r->grid.dy) * r->grid.width + r->grid.dx;
		uint16_t *depth = r->grid.depth + first;
		uint8_t *color = r->grid.color + 3 * first;
		v4 w = here[0] = above[0] = above[1];
		for (int x = 0; x < width; x++) {
			w = VARIANT(median_edge)(w, above[x + 1], above[x]);
			if (bits[x / 64] >> (x % 64) & 1) {
				uint32_t dg = *dg_at++, c = *c_at++;
				v4 v = depth_green[dg] + chroma[c];
				if (UNLIKELY(escapes_in(dg | c << 8))) {
					v[0] = take(&escapes, dg >> 4, MAX_COORD);
					v[1] = take(&escapes, c >> 4, MAX_CHROMA);
					v[2] = take(&escapes, dg & 15, MAX_GREEN);
					v[3] = take(&escapes, c & 15, MAX_CHROMA);
				}
				w = (w + v) & wrap;
				VARIANT(put_pixel)(depth + (size_t)x * step, color + 3 * (size_t)x * step, w);
			}
			here[x + 1] = w;
		}
		v4 *v = above;
		above = here;
		here = v;
	}
	*r->escapes = escapes;
}

TARGET static void VARIANT(decode_rows)(const struct row_decoding *r)
{
	r->grid.step == 1 ? VARIANT(decode_steps)(r, 1) : VARIANT(decode_steps)(r, r->grid.step);
}

#undef INLINE
