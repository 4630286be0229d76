#include "kernels.h"

// For each destination row, first sum its source rows per column, which compilers vectorise, then
// sum the columns.
void tiles_shrink(uint8_t *dst, int dst_stride, int dst_width, int dst_height,
		  const uint8_t *src, int src_stride, int src_width, int src_height, uint16_t *columns)
{
	for (int v = 0; v < dst_height; v++) {
		int y0 = (int)((int64_t)v * src_height / dst_height), y1 = (int)((int64_t)(v + 1) * src_height / dst_height);
		const uint8_t *row = src + (size_t)y0 * src_stride;
		uint8_t *out = dst + (size_t)v * dst_stride;

		for (int x = 0; x < src_width; x++)
			columns[x] = row[x];
		for (int y = y0 + 1; y < y1; y++) {
			row += src_stride;
			for (int x = 0; x < src_width; x++)
				columns[x] += row[x];
		}
		if (4 * dst_width == src_width && y1 - y0 == 4) {
			for (int u = 0; u < dst_width; u++) {
				const uint16_t *c = columns + 4 * u;
				out[u] = (uint8_t)((c[0] + c[1] + c[2] + c[3] + 8) >> 4);
			}
			continue;
		}
		for (int u = 0; u < dst_width; u++) {
			int x0 = (int)((int64_t)u * src_width / dst_width), x1 = (int)((int64_t)(u + 1) * src_width / dst_width);
			uint32_t sum = 0, n = (uint32_t)((y1 - y0) * (x1 - x0));

			for (int x = x0; x < x1; x++)
				sum += columns[x];
			out[u] = (uint8_t)((sum + n / 2) / n);
		}
	}
}

double tiles_enlarged_error(const uint8_t *src, int src_stride, int x, int y, int width, int rows,
			    int full_width, int full_height, const uint8_t *small, int small_width, int small_height,
			    const float *weights)
{
	double total = 0;

	for (int r = 0; r < rows; r++) {
		float fy = (y + r + 0.5f) * small_height / full_height - 0.5f;
		int y0 = fy < 0 ? -1 : (int)fy;
		float wy = fy - y0;
		const uint8_t *a = small + (size_t)(y0 < 0 ? 0 : y0) * small_width;
		const uint8_t *b = small + (size_t)(y0 + 1 < small_height ? y0 + 1 : small_height - 1) * small_width;
		const uint8_t *s = src + (size_t)(y + r) * src_stride + x;
		float sum = 0;

		for (int i = 0; i < width; i++) {
			float fx = (x + i + 0.5f) * small_width / full_width - 0.5f;
			int x0 = fx < 0 ? -1 : (int)fx;
			float wx = fx - x0;
			int l = x0 < 0 ? small_width - 1 : x0, m = x0 + 1 < small_width ? x0 + 1 : 0;
			float top = a[l] + wx * (a[m] - a[l]), bottom = b[l] + wx * (b[m] - b[l]);
			float d = s[i] - (top + wy * (bottom - top));
			sum += d * d;
		}
		total += (double)sum * weights[r];
	}
	return total;
}
