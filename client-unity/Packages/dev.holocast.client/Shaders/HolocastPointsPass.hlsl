// Programs of the points' passes, for the built-in pipeline and URP: limited to their common macros
// and variables. Include UnityCG.cginc or URP's Core.hlsl first.
#ifndef HOLOCAST_POINTS_PASS_INCLUDED
#define HOLOCAST_POINTS_PASS_INCLUDED

#include "Packages/dev.holocast.client/Shaders/HolocastPoints.hlsl"
#if defined(HOLOCAST_SURFACE)
#include "Packages/dev.holocast.client/Shaders/HolocastSurface.hlsl"
#endif

#if defined(HOLOCAST_CLOUD)
StructuredBuffer<uint> _HolocastWords; // three per point
#elif !defined(HOLOCAST_SURFACE)
StructuredBuffer<uint2> _HolocastWords;
Texture2D<float2> _HolocastRays;
#endif
float _HolocastEdge;

struct Input
{
    uint vertex : SV_VertexID;
    UNITY_VERTEX_INPUT_INSTANCE_ID
};

struct Varyings
{
    float4 position : SV_POSITION;
    #if defined(HOLOCAST_SURFACE)
    half3 color : COLOR0;
    #else
    nointerpolation half3 color : COLOR0;
    #endif
    UNITY_VERTEX_OUTPUT_STEREO
};

// shadow: draws surfaces that face away, too, and none nearer.
Varyings Project(Input input, bool shadow)
{
    Varyings output = (Varyings)0;
    UNITY_SETUP_INSTANCE_ID(input);
    UNITY_INITIALIZE_VERTEX_OUTPUT_STEREO(output);
    output.position = HolocastNowhere();
    float4x4 modelView = mul(UNITY_MATRIX_V, unity_ObjectToWorld);

    #if defined(HOLOCAST_CLOUD)
    uint at = 3u * (input.vertex >> 2);
    HolocastPoint p = HolocastCloudPoint(
        uint3(_HolocastWords[at], _HolocastWords[at + 1u], _HolocastWords[at + 2u]));
    #elif defined(HOLOCAST_SURFACE)
    HolocastPoint p = HolocastSurfaceCorner(input.vertex);
    #else
    uint2 words = _HolocastWords[input.vertex >> 2];
    float2 ray = _HolocastRays.Load(int3(HolocastPixel(words), 0));
    if (!HolocastHasRay(ray))
    {
        return output;
    }
    HolocastPoint p = HolocastGridPoint(words, ray);
    #endif

    #if defined(HOLOCAST_SURFACE)
    if (p.position.z == 0.0) // no ray
    {
        return output;
    }
    float3 eye = mul(modelView, float4(p.position, 1.0)).xyz;
    if (_HolocastNearer > 0.0 && !shadow)
    {
        // The same for all corners, or a quad would be torn.
        float3 middle = HolocastSurfaceMiddle(input.vertex >> 2);
        float weight = HolocastWeight(middle, _HolocastFacets[input.vertex >> 2], modelView, UNITY_MATRIX_P);
        if (weight < 0.0)
        {
            return output;
        }
        eye = HolocastNearer(eye, weight, modelView, UNITY_MATRIX_P);
    }
    output.position = mul(UNITY_MATRIX_P, float4(eye, 1.0));
    #else
    output.position = HolocastCorner(
        p, input.vertex & 3u, modelView, UNITY_MATRIX_P, _HolocastEdge, _ScreenParams.y);
    #endif

    #if defined(UNITY_COLORSPACE_GAMMA)
    output.color = half3(p.color);
    #else
    output.color = half3(HolocastLinear(p.color));
    #endif
    return output;
}

Varyings Vertex(Input input)
{
    return Project(input, false);
}

// Points behind the light's near plane cast shadows, too.
Varyings ShadowVertex(Input input)
{
    Varyings output = Project(input, true);
    #if UNITY_REVERSED_Z
    output.position.z = min(output.position.z, output.position.w * UNITY_NEAR_CLIP_VALUE);
    #else
    output.position.z = max(output.position.z, output.position.w * UNITY_NEAR_CLIP_VALUE);
    #endif
    return output;
}

half4 Fragment(Varyings input) : SV_Target
{
    UNITY_SETUP_STEREO_EYE_INDEX_POST_VERTEX(input);
    return half4(input.color, 1.0);
}

half4 DepthFragment(Varyings input) : SV_Target
{
    return half4(input.position.z, 0.0, 0.0, 0.0);
}

struct NormalVaryings
{
    float4 position : SV_POSITION;
    nointerpolation float3 normal : TEXCOORD0; // world coordinates
    UNITY_VERTEX_OUTPUT_STEREO
};

NormalVaryings NormalVertex(Input input)
{
    NormalVaryings output = (NormalVaryings)0;
    UNITY_SETUP_INSTANCE_ID(input);
    UNITY_INITIALIZE_VERTEX_OUTPUT_STEREO(output);
    output.position = Vertex(input).position;
    output.normal = UNITY_MATRIX_V[2].xyz; // squares face the eye
    #if defined(HOLOCAST_SURFACE)
    float3 normal = HolocastNormal(_HolocastFacets[input.vertex >> 2]);
    output.normal = normalize(mul((float3x3)unity_ObjectToWorld, normal));
    #endif
    return output;
}

half4 NormalFragment(NormalVaryings input) : SV_Target
{
    return half4(half3(input.normal), 0.0);
}

#endif
