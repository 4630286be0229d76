// Maps directions to an equirectangular picture, and its samples to colors. Independent of any
// engine: HolocastSphere.shader includes it for Unity, and client-unity/verify runs it on Vulkan.
#ifndef HOLOCAST_SPHERE_INCLUDED
#define HOLOCAST_SPHERE_INCLUDED

// Corner 0 to 7 of a box around the eye.
float3 HolocastBoxCorner(uint corner)
{
    return float3(uint3(corner, corner >> 1, corner >> 2) & 1u) * 2.0 - 1.0;
}

// Clip coordinates of a direction at infinity.
//   view       world to eye; only the rotation is used
//   farDepth   depth value of the far plane, 0 or 1
float4 HolocastFarAway(float3 direction, float4x4 view, float4x4 projection, float farDepth)
{
    float4 p = mul(projection, float4(mul((float3x3)view, direction), 1.0));
    p.z = farDepth * p.w;
    return p;
}

// Longitude and latitude as fractions of one eye's picture. Its left edge is behind the viewer, its
// top the zenith.
float2 HolocastEquirect(float3 direction)
{
    const float Pi = 3.14159265359;
    float3 d = normalize(direction);
    return float2(atan2(d.x, d.z) / (2.0 * Pi) + 0.5, 0.5 - asin(clamp(d.y, -1.0, 1.0)) / Pi);
}

// The same in a plane that holds both eyes' pictures, left above right. Clamped so that filtering
// never blends the eyes.
float2 HolocastOfEye(float2 at, float eye, float eyes, float rows)
{
    float texel = 0.5 / rows;
    return float2(at.x, clamp((at.y + eye) / eyes, eye / eyes + texel, (eye + 1.0) / eyes - texel));
}

// Converts Y, Cb and Cr samples, 0 to 1, to sRGB (ITU-T H.273, matrix coefficients).
//   red, blue   their weights in luma (KR, KB)
float3 HolocastColor(float3 samples, float fullRange, float red, float blue)
{
    float3 zero = float3(lerp(16.0, 0.0, fullRange), 128.0, 128.0) / 255.0;
    float3 span = lerp(float3(219.0, 224.0, 224.0) / 255.0, float3(1.0, 1.0, 1.0), fullRange);
    float3 c = (samples - zero) / span;
    float green = 1.0 - red - blue;
    float r = c.x + 2.0 * (1.0 - red) * c.z;
    float b = c.x + 2.0 * (1.0 - blue) * c.y;
    return saturate(float3(r, (c.x - red * r - blue * b) / green, b));
}

#endif
