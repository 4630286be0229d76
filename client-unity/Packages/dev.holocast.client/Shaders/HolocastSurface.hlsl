// Draws the quads that HolocastQuads.compute makes of a frame's points (docs/spec/surface.md): four vertices
// per point. Independent of any engine, like HolocastPoints.hlsl, which must be included first. Lengths are
// millimetres in camera coordinates unless noted.
#ifndef HOLOCAST_SURFACE_INCLUDED
#define HOLOCAST_SURFACE_INCLUDED

// Per vertex: X, Y and Z as floats; R | G << 8 | B << 16.
StructuredBuffer<uint4> _HolocastCorners;
// Per point: normal, octahedral; facing² · inside⁴ in 1/65535, << 16.
StructuredBuffer<uint> _HolocastFacets;
float _HolocastNearer; // shift of a camera of weight 1 towards the eye, mm; 0 for a single camera

HolocastPoint HolocastSurfaceCorner(uint vertex)
{
    uint4 corner = _HolocastCorners[vertex];
    HolocastPoint p;
    p.position = asfloat(corner.xyz);
    p.color = float3(uint3(corner.w & 0xffu, (corner.w >> 8) & 0xffu, corner.w >> 16)) / 255.0;
    return p;
}

// A place within a point's quad.
float3 HolocastSurfaceMiddle(uint at)
{
    return 0.5 * (asfloat(_HolocastCorners[4u * at].xyz) + asfloat(_HolocastCorners[4u * at + 3u].xyz));
}

// A point's normal, normalized; it points to the sensor.
float3 HolocastNormal(uint facet)
{
    float2 o = float2(uint2(facet & 0xffu, (facet >> 8) & 0xffu)) / 127.0 - 1.0;
    float3 n = float3(o, 1.0 - abs(o.x) - abs(o.y));
    float fold = max(-n.z, 0.0);
    n.xy -= float2(n.x < 0.0 ? -fold : fold, n.y < 0.0 ? -fold : fold);
    return normalize(n);
}

// Vector to the viewer from a point in eye coordinates; in orthographic projections of length 1.
float3 HolocastToViewer(float3 eye, float4x4 projection)
{
    return lerp(-eye, float3(0.0, 0.0, 1.0), projection._m33);
}

// The weight that decides where surfaces of several cameras coincide. Below 0 if the surface faces away from
// the viewer.
float HolocastWeight(float3 position, uint facet, float4x4 modelView, float4x4 projection)
{
    float3 eye = mul(modelView, float4(position, 1.0)).xyz;
    // Multiplying from the left transposes: back to camera coordinates, times the square of the scale.
    float3 toViewer = normalize(mul(HolocastToViewer(eye, projection), (float3x3)modelView));
    float similar = max(-dot(normalize(position), toViewer), 0.0);
    similar *= similar;
    similar *= similar;
    return dot(HolocastNormal(facet), toViewer) > 0.0 ? float(facet >> 16) / 65535.0 * similar * similar : -1.0;
}

// Moves a corner in eye coordinates toward the viewer: the camera with the higher weight covers the others.
// Its place in the picture remains.
float3 HolocastNearer(float3 eye, float weight, float4x4 modelView, float4x4 projection)
{
    float scale = length(float3(modelView._m00, modelView._m10, modelView._m20));
    float3 toViewer = HolocastToViewer(eye, projection);
    return eye + toViewer * min(_HolocastNearer * weight * scale / length(toViewer), 0.5);
}

#endif
