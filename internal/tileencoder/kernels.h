#ifndef HOLOCAST_TILES_KERNELS_H
#define HOLOCAST_TILES_KERNELS_H

#include <stddef.h>
#include <stdint.h>

// Shrinks a plane. Each destination pixel is the mean of the source pixels in its rectangle, in
// whole pixels, at most 257 rows high. columns has room for a row of the source.
void tiles_shrink(uint8_t *dst, int dst_stride, int dst_width, int dst_height,
		  const uint8_t *src, int src_stride, int src_width, int src_height, uint16_t *columns);

// Returns the sum of weights[r]·(src − enlarged)² over the rectangle of width × rows pixels at x, y
// of a picture of full_width × full_height. enlarged is the small picture, linearly interpolated
// between pixel centres; it wraps in x and is clamped in y.
double tiles_enlarged_error(const uint8_t *src, int src_stride, int x, int y, int width, int rows,
			    int full_width, int full_height, const uint8_t *small, int small_width, int small_height,
			    const float *weights);

#endif
