// Program of the text's pass, for the built-in pipeline and URP: limited to their common macros
// and variables. Include UnityCG.cginc or URP's Core.hlsl first.
#ifndef HOLOCAST_TEXT_PASS_INCLUDED
#define HOLOCAST_TEXT_PASS_INCLUDED

Texture2D _MainTex;
SamplerState sampler_MainTex;
float4 _Color;

struct Input
{
    float4 position : POSITION;
    float2 uv : TEXCOORD0;
    UNITY_VERTEX_INPUT_INSTANCE_ID
};

struct Varyings
{
    float4 position : SV_POSITION;
    float2 uv : TEXCOORD0;
    UNITY_VERTEX_OUTPUT_STEREO
};

Varyings Vertex(Input input)
{
    Varyings output = (Varyings)0;
    UNITY_SETUP_INSTANCE_ID(input);
    UNITY_INITIALIZE_VERTEX_OUTPUT_STEREO(output);
    output.position = mul(UNITY_MATRIX_VP, mul(unity_ObjectToWorld, float4(input.position.xyz, 1.0)));
    output.uv = input.uv;
    return output;
}

float4 Fragment(Varyings input) : SV_Target
{
    UNITY_SETUP_STEREO_EYE_INDEX_POST_VERTEX(input);
    float alpha = _MainTex.Sample(sampler_MainTex, input.uv).a * _Color.a;
    clip(alpha - 0.1);
    return float4(_Color.rgb, alpha);
}

#endif
