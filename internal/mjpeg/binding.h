// Thin wrappers that satisfy cgo's pointer rules: planes are separate parameters, so C never sees
// Go memory that contains Go pointers. Error texts are copied because the library reuses its
// buffer.
#ifndef HOLOCAST_MJPEG_BINDING_H
#define HOLOCAST_MJPEG_BINDING_H

#include <stdio.h>
#include <turbojpeg.h>

enum { ERROR_LEN = 200 }; // JMSG_LENGTH_MAX

enum { INCOMPLETE = 1 }; // decoded, with a warning

static int failed(tjhandle h, char *err)
{
	snprintf(err, ERROR_LEN, "%s", tjGetErrorStr2(h));
	return tjGetErrorCode(h) == TJERR_WARNING ? INCOMPLETE : -1;
}

static int decode_header(tjhandle h, const unsigned char *jpeg, unsigned long len,
			 int *width, int *height, int *subsamp, int *colorspace, char *err)
{
	if (tjDecompressHeader3(h, jpeg, len, width, height, subsamp, colorspace) != 0)
		return failed(h, err);
	return 0;
}

static int decode_planes(tjhandle h, const unsigned char *jpeg, unsigned long len,
			 unsigned char *y, unsigned char *cb, unsigned char *cr,
			 int y_stride, int c_stride, int width, int height, int flags, char *err)
{
	unsigned char *planes[3] = { y, cb, cr };
	int strides[3] = { y_stride, c_stride, c_stride };

	if (tjDecompressToYUVPlanes(h, jpeg, len, planes, width, strides, height, flags) != 0)
		return failed(h, err);
	return 0;
}

static int decode_rgb(tjhandle h, const unsigned char *jpeg, unsigned long len,
		      unsigned char *rgb, int width, int height, int flags, char *err)
{
	if (tjDecompress2(h, jpeg, len, rgb, width, 0, height, TJPF_RGB, flags) != 0)
		return failed(h, err);
	return 0;
}

static int encode_planes(tjhandle h, const unsigned char *y, const unsigned char *cb,
			 const unsigned char *cr, int y_stride, int c_stride, int width,
			 int height, int subsamp, unsigned char *jpeg, unsigned long *len,
			 int quality, char *err)
{
	const unsigned char *planes[3] = { y, cb, cr };
	int strides[3] = { y_stride, c_stride, c_stride };

	if (tjCompressFromYUVPlanes(h, planes, width, strides, height, subsamp, &jpeg, len,
				    quality, TJFLAG_NOREALLOC) != 0)
		return failed(h, err);
	return 0;
}

static int encode_rgb(tjhandle h, const unsigned char *rgb, int width, int height, int subsamp,
		      unsigned char *jpeg, unsigned long *len, int quality, char *err)
{
	if (tjCompress2(h, rgb, width, 0, height, TJPF_RGB, &jpeg, len, subsamp, quality,
			TJFLAG_NOREALLOC) != 0)
		return failed(h, err);
	return 0;
}

#endif
